"""Tools around the two products, and the two small modules that every room shares: `cli` and `paths`."""
