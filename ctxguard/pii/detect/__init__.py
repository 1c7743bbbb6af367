"""Apply rules to a string: normalize it, select the rules that may match, match them, and validate the matches."""
