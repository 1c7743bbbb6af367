"""Puts this folder on the path, so that the tests of every adapter share `conversions`."""
