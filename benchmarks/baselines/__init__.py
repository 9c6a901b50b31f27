"""The same work done by code that shares nothing with the package: what speed is measured against."""
