"""Views in RAM over the compiled core, kept in step with a store by sequence number."""

from twofold._core import __version__, kernel, kernels

__all__ = ["__version__", "kernel", "kernels"]
