"""Find what rules describe: normalize a text, prefilter the rules, match, validate."""
