"""Prompts from templates: markdown files that include each other and have variables.

A template is text with two kinds of marks; everything else is left alone:

* `{name}`, a plain name between braces, is a variable.
* `{% include 'shared/tools.md' %}` includes another template, by its path in the prompts directory.

All other braces are text, so JSON, code and regular expressions can be written as they are: `{"a": {"b": 1}}`, `{x.y}`,
`{x[0]}`, `{0}`, `{}`. A doubled pair `{{ … }}` becomes a single pair, as in `str.format`: `{{name}}` is the text
`{name}`. Values are never searched for variables or includes, and a brace in one file never pairs with one in another.
"""

from ctxguard.prompts.loading import get_instructions, get_prompt, get_system_prompt, load_prompt

__all__ = ["get_instructions", "get_prompt", "get_system_prompt", "load_prompt"]
