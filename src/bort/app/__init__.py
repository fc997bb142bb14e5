"""The explorer: a local web page on top of runs."""
