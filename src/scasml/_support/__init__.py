"""Tools for all other packages: errors, precision, tracing, jaxprs and counts of operations."""
