"""The data doctor: what is wrong with a parallel text, before anybody trains on it; a file per examination."""
