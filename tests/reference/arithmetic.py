"""The core's exp and log restated in Python floats, which round as C++ doubles do; checked against `math`."""

import math

LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def exp(x: float) -> float:
    """Return e**x: a power of two times the Taylor series of what is left of x."""
    if not x < 709.782712893384:
        return x if math.isnan(x) else math.inf
    if x < -745.2:
        return 0.0
    k = round(x * float.fromhex("0x1.71547652b82fep+0"))
    high = x - k * LN2_HIGH
    low = k * LN2_LOW
    r = high - low
    error = (high - r) - low
    series = 1.0 / math.factorial(13)
    for n in range(12, 2, -1):
        series = series * r + 1.0 / math.factorial(n)
    series = series * r + 0.5
    return math.ldexp(1.0 + (r + (r * r * series + error)), k)


def log(x: float) -> float:
    """Return ln x by 2 atanh((m - 1) / (m + 1)) of the mantissa m in (0.71, 1.42)."""
    m, k = math.frexp(x)
    m, k = 2.0 * m, k - 1
    if m > 1.4142135623730951:
        m, k = 0.5 * m, k + 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 2.0 / 23.0
    for n in range(21, 2, -2):
        series = series * z + 2.0 / n
    half = 0.5 * f * f
    tail = s * (half + z * series)
    return k * LN2_HIGH - ((half - (tail + k * LN2_LOW)) - f)
