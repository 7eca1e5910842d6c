#include "twofold/decay.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "arith.hpp"
#include "bits.hpp"

namespace {

double ulps(double got, double exact) {
    const double unit =
        std::nextafter(std::abs(exact), std::numeric_limits<double>::infinity()) - std::abs(exact);
    return std::abs(got - exact) / unit;
}

const double kAgeRate = 0.02;
const double kIdleRate = 0.05;
const double kBoost = 0.1;
const double kCap = 0.4;
const double kRecent = 0.15;

twofold::DecayRates published() {
    return {{&kAgeRate, 1}, {&kIdleRate, 1}, {&kBoost, 1}, {&kCap, 1}, {&kRecent, 1}};
}

}  // namespace

TEST_CASE("exp is within an ulp of long double and known at its ends") {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> any(-700.0, 700.0);
    std::uniform_real_distribution<double> small(-1.0, 1.0);
    double worst = 0.0;
    for (int i = 0; i < 200'000; ++i) {
        const double x = i % 2 == 0 ? any(random) : small(random);
        worst = std::max(
            worst, ulps(twofold::arith::exp(x), static_cast<double>(std::exp(static_cast<long double>(x)))));
    }
    CHECK(worst <= 1.0);
    CHECK(twofold::arith::exp(0.0) == 1.0);
    CHECK(twofold::arith::exp(-0.0) == 1.0);
    CHECK(twofold::arith::exp(-1e300) == 0.0);
    CHECK(twofold::arith::exp(-745.0) > 0.0);
    CHECK(twofold::arith::exp(1e300) == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(twofold::arith::exp(std::nan(""))));
}

TEST_CASE("exp does not fall between neighbours") {
    std::mt19937_64 random(8);
    std::uniform_real_distribution<double> any(-40.0, 1.0);
    int falls = 0;
    for (int i = 0; i < 200'000; ++i) {
        const double x = any(random);
        falls += twofold::arith::exp(std::nextafter(x, 100.0)) < twofold::arith::exp(x) ? 1 : 0;
    }
    CHECK(falls == 0);
}

TEST_CASE("log is within an ulp of long double and known at its ends") {
    std::mt19937_64 random(9);
    std::uniform_real_distribution<double> exponent(-1070.0, 1023.0);
    std::uniform_real_distribution<double> near_one(0.5, 2.0);
    double worst = 0.0;
    for (int i = 0; i < 200'000; ++i) {
        const double x = i % 2 == 0 ? std::exp2(exponent(random)) : near_one(random);
        worst = std::max(
            worst, ulps(twofold::arith::log(x), static_cast<double>(std::log(static_cast<long double>(x)))));
    }
    CHECK(worst <= 1.0);
    CHECK(twofold::arith::log(1.0) == 0.0);
    CHECK(twofold::arith::log(0.0) == -std::numeric_limits<double>::infinity());
    CHECK(twofold::arith::log(std::numeric_limits<double>::infinity()) ==
          std::numeric_limits<double>::infinity());
    CHECK(std::isnan(twofold::arith::log(-1.0)));
    CHECK(std::isnan(twofold::arith::log(std::nan(""))));
    CHECK(ulps(twofold::arith::log(5e-324), std::log(5e-324)) <= 1.0);
}

TEST_CASE("decay follows the formula, its caps and its crossings") {
    const std::vector<double> age = {0.0, 32.0, 33.0, 50.0, 50.0, -3.0};
    const std::vector<std::int64_t> accesses = {0, 0, 0, 4, 40, 0};
    const std::vector<std::int64_t> recent = {0, 0, 0, 0, 9, 0};
    std::vector<double> out(age.size());
    twofold::decay(age, age, accesses, recent, published(), out);
    CHECK(out[0] == 1.0);
    CHECK(out[1] > 0.1);
    CHECK(out[2] < 0.1);
    CHECK(out[3] == doctest::Approx(1.4 * std::exp(-3.5)).epsilon(1e-14));
    CHECK(out[4] == 1.0);
    CHECK(out[5] == 1.0);
}

TEST_CASE("decay refuses what it cannot use") {
    std::vector<double> one = {1.0};
    std::vector<double> out(1);
    const std::vector<std::int64_t> none = {0};
    const std::vector<std::int64_t> negative = {-1};
    const std::vector<double> nan = {std::nan("")};
    const std::vector<double> two = {1.0, 2.0};
    CHECK_THROWS_AS(twofold::decay(nan, one, none, none, published(), out), std::invalid_argument);
    CHECK_THROWS_AS(twofold::decay(one, two, none, none, published(), out), std::invalid_argument);
    CHECK_THROWS_AS(twofold::decay(one, one, negative, none, published(), out), std::invalid_argument);
    twofold::DecayRates rates = published();
    rates.access_cap = two;
    CHECK_THROWS_AS(twofold::decay(one, one, none, none, rates, out), std::invalid_argument);
    rates = published();
    rates.age_rate = nan;
    CHECK_THROWS_AS(twofold::decay(one, one, none, none, rates, out), std::invalid_argument);
}

TEST_CASE("decay gives the same bits on every machine") {
    bits::Random random(1);
    std::vector<double> age, idle;
    std::vector<std::int64_t> accesses, recent;
    for (int i = 0; i < 2000; ++i) {
        age.push_back(400.0 * random.unit());
        idle.push_back(400.0 * random.unit());
        accesses.push_back(random.below(6));
        recent.push_back(random.below(10) / 9);
    }
    std::vector<double> out(age.size());
    twofold::decay(age, idle, accesses, recent, published(), out);
    CHECK(bits::hash(0, out) == 11785682219346778281ULL);
}
