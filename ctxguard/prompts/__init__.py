"""Prompts from templates: Markdown files with variables, which can include each other.

A template is text with two kinds of markup:

* `{name}`, a plain name in braces, is a variable.
* `{% include 'shared/tools.md' %}` includes another template; the path is relative to the prompts directory.

All other braces are text, so JSON, code, and regular expressions can be written as they are: `{"a": {"b": 1}}`,
`{x.y}`, `{x[0]}`, `{0}`, `{}`. A doubled pair `{{ … }}` becomes a single pair, as in `str.format`: `{{name}}` is the
text `{name}`. Values are never searched for variables or includes, and a brace in one file never forms a pair with a
brace in another file.
"""

from ctxguard.prompts.templates import get_instructions, get_prompt, get_system_prompt, load_prompt

__all__ = ["get_instructions", "get_prompt", "get_system_prompt", "load_prompt"]
