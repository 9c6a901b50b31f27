"""The acceptance run of operators: eight unequal sites, some of them hostile, through Flower, NVFlare or neither."""
