"""Views in RAM over the compiled core, kept in step with a store by sequence number."""

from twofold._core import kernel, kernels

__all__ = ["kernel", "kernels"]
