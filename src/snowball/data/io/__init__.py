"""Finding, downloading, reading and caching the files of data sets."""
