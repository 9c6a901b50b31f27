"""Programs that measure the package from a checkout: README.md says which question each answers."""
