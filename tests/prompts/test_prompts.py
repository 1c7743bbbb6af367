"""Prompt templates: what they do, and what hostile ones cannot do."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext, suppress
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cli import cli
from typer.testing import CliRunner

from ctxguard.cli.prompts import app
from ctxguard.errors import CtxguardError, PromptError, PromptNotFoundError
from ctxguard.prompts import get_instructions, get_prompt, get_system_prompt, load_prompt
from ctxguard.prompts.templates import MAX_DEPTH, MAX_SIZE, check_prompts
from ctxguard.tokens import EstimateCounter, find_counter

SAME_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty prompts directory, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CTXGUARD_PROMPTS_DIR", raising=False)
    folder = tmp_path / "prompts"
    folder.mkdir()
    return folder


def write(folder: Path, **templates: str) -> None:
    for name, text in templates.items():
        file = folder / f"{name.replace('__', '/')}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def load(folder: Path, text: str, **variables: object) -> str:
    write(folder, t=text)
    return load_prompt("t.md", prompts_dir=folder, **variables)


# What they do.


def test_the_documented_example(prompts: Path) -> None:
    write(
        prompts,
        analysis=(
            "# Analysis Agent\n\n{% include 'shared/workspace.md' %}\n{% include 'shared/file_tools.md' %}\n\n"
            "Analyze the {database} database. Limit results to {max_rows} rows.\n"
        ),
        shared__workspace="Stay in the workspace.",
        shared__file_tools="Use read_file.",
    )
    assert load_prompt(Path("prompts/analysis.md"), database="bookstore", max_rows=100) == (
        "# Analysis Agent\n\nStay in the workspace.\nUse read_file.\n\n"
        "Analyze the bookstore database. Limit results to 100 rows.\n"
    )


def test_the_named_prompts(prompts: Path) -> None:
    write(
        prompts, system_prompt="You are {agent_name}.", instructions="Be brief.", analysis="Look at {name} in {path}."
    )
    assert get_system_prompt(agent_name="sql") == "You are sql."
    assert get_instructions() == "Be brief."
    assert get_prompt("analysis", name="x", path="y") == "Look at x in y."
    assert get_prompt("analysis.md", name="x", path="y") == "Look at x in y."


def test_the_directory_is_the_argument_then_the_environment_then_the_configuration_then_prompts(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("argument", "environment", "configuration", "prompts"):
        (tmp_path / place).mkdir(exist_ok=True)
        write(tmp_path / place, x=f"from {place}", t="{% include 'x.md' %}")
    assert get_prompt("t") == "from prompts"
    (tmp_path / "ctxguard.yaml").write_text("prompts_dir: configuration\n")
    assert get_prompt("t") == "from configuration"
    monkeypatch.setenv("CTXGUARD_PROMPTS_DIR", "environment")
    assert get_prompt("t") == "from environment"
    assert get_prompt("t", prompts_dir=tmp_path / "argument") == "from argument"
    assert load_prompt("prompts/t.md") == "from environment"


def test_a_template_elsewhere_includes_from_the_directory(prompts: Path, tmp_path: Path) -> None:
    write(prompts, part="part")
    write(tmp_path, own="own and {% include 'part.md' %}")
    assert load_prompt(tmp_path / "own.md") == "own and part"
    assert load_prompt("own.md") == "own and part"


def test_includes_nest_and_repeat(prompts: Path) -> None:
    write(prompts, a="<{% include 'b.md' %}{%include \"b.md\"%}>", b="[{%- include 'sub/c.md' -%}]", sub__c="{x}")
    assert get_prompt("a", x=1) == "<[1][1]>"


def test_missing_and_unused_variables_are_named(prompts: Path) -> None:
    write(prompts, t="{a} {b} {% include 'u.md' %}", u="{c}")
    with pytest.raises(ValueError, match=r"t\.md: missing variables: a, c; unused variables: x, y;") as raised:
        get_prompt("t", b=1, x=2, y=3)
    assert isinstance(raised.value, PromptError)
    assert isinstance(raised.value, CtxguardError)
    assert (raised.value.missing, raised.value.unused) == (("a", "c"), ("x", "y"))


@pytest.mark.parametrize("value", ["{b}", "{% include 'u.md' %}", "{{x}}", "{a}", "}", "{0} %s \\1 \\g<0>", None, 3])
def test_values_are_never_expanded(prompts: Path, value: object) -> None:
    write(prompts, u="SECRET")
    assert load(prompts, "<{a}|{b}>", a=value, b="B") == f"<{value}|B>"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"a": {"b": {"c": [1, {}]}}}),
        json.dumps({"a": {"b": 1}}, indent=2),
        '[{"role": "user"}, {"role": "tool"}]',
        "{}",
        "{ name }",
        "{0} {} {a b} {a-b} {1a} {,3}",
        r"\d{3}-\d{2,4}",
        "{x.__class__} {x[0]} {x!r} {x:>10} {x.y[z]}",
        "int a[2][2] = {{1,2},{3,4}};",
        "if (x) { return {}; }",
        "{ { } {{ } }",
        "}} { {{",
        "{%\n\\section",
        "100 {% of",
        "{% for x in y",
    ],
)
def test_other_braces_stay_as_they_are(prompts: Path, text: str) -> None:
    assert load(prompts, text) == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{a}}", "{a}"),
        ("{{ and }}", "{ and }"),
        ('{{"a": {a}}}', '{"a": 1}'),
        ('{{"a": {{"b": {a}}}}}', '{"a": {"b": 1}}'),
        ('{"a": {a}}', '{"a": 1}'),
        ('{"a": {"b": {a}}}', '{"a": {"b": 1}}'),
        ("{{{a}}}", "{1}"),
        ("{{{{a}}}} {a}", "{{a}} 1"),
        ("{{% include 'u.md' %}}", "{% include 'u.md' %}"),
        ("{{x.y}} {a}", "{x.y} 1"),
        ("{{a} {a}", None),
    ],
)
def test_doubled_braces_are_literal_ones(prompts: Path, text: str, result: str | None) -> None:
    variables = {"a": 1} if re.search(r"(?<!\{)(?:\{\{)*\{a\}", text) or "{{{a" in text else {}
    if result is None:
        result = "{{a} 1"
    assert load(prompts, text, **variables) == result


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def is_json_with_mark(text: str) -> bool:
    return re.search(r"\{\w+\}|\{\{|\{%", text) is not None


@SAME_FOLDER
@given(json_values.map(json.dumps))
def test_any_json_without_marks_in_its_strings_survives(prompts: Path, text: str) -> None:
    if not is_json_with_mark(text):
        assert load(prompts, text) == text


balanced_templates = st.recursive(
    st.sampled_from(["{a}", "{b}", "text", " ", "%", "\n", ""]),
    lambda inner: st.lists(inner).map("".join) | inner.map(lambda text: f"{{{{{text}}}}}"),
    max_leaves=30,
)


@SAME_FOLDER
@given(balanced_templates)
def test_plain_names_and_doubled_pairs_do_what_str_format_does(prompts: Path, text: str) -> None:
    used = {name: "v" for _, name, _, _ in Formatter().parse(text) if name}
    assert load(prompts, text, **used) == text.format(**used)


@SAME_FOLDER
@given(st.text("{}ab '%\n", max_size=60))
def test_any_text_gives_a_prompt_or_says_why_not(prompts: Path, text: str) -> None:
    with suppress(PromptError):
        assert len(load(prompts, text)) <= len(text)


@SAME_FOLDER
@given(st.text("{}", max_size=40))
def test_braces_alone_lose_at_most_the_doubling(prompts: Path, text: str) -> None:
    result = load(prompts, text)
    assert set(result) <= {"{", "}"}
    assert len(text) / 2 <= len(result) <= len(text)
    assert text.count("{") - result.count("{") == text.count("}") - result.count("}")


# What hostile ones cannot do.


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.md"
    file.write_text("SECRET")
    return file


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.md", "sub/../../secret.md", "..", "/", "./../prompts/../secret.md"]
)
def test_an_include_from_outside_is_refused(prompts: Path, secret: Path, path: str) -> None:
    (prompts / "sub").mkdir()
    with pytest.raises(PromptError, match=r"t\.md:2: .* is outside the prompts directory"):
        load(prompts, f"one\n{{% include '{path}' %}}")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "../../etc/passwd", "sub/../../secret"])
def test_a_prompt_name_cannot_lead_out(prompts: Path, secret: Path, name: str) -> None:
    (prompts / "sub").mkdir()
    with pytest.raises(PromptError, match="outside"):
        get_prompt(name)


def test_a_relative_path_cannot_lead_out_of_the_directory(prompts: Path, secret: Path) -> None:
    with pytest.raises(PromptError, match="outside"):
        load_prompt("../secret.md", prompts_dir=prompts)


def test_links_that_lead_out_are_refused_and_links_inside_are_followed(prompts: Path, secret: Path) -> None:
    write(prompts, real="inside")
    (prompts / "file.md").symlink_to(secret)
    (prompts / "folder").symlink_to(secret.parent)
    (prompts / "loop.md").symlink_to("loop.md")
    (prompts / "inside.md").symlink_to("real.md")
    for path in ("file.md", "folder/secret.md"):
        with pytest.raises(PromptError, match="outside"):
            load(prompts, f"{{% include '{path}' %}}")
        with pytest.raises(PromptError, match="outside"):
            load_prompt(path, prompts_dir=prompts)
    with pytest.raises(PromptNotFoundError):
        load(prompts, "{% include 'loop.md' %}")
    assert load(prompts, "{% include 'inside.md' %}") == "inside"


def test_a_directory_that_is_a_link_works(prompts: Path, tmp_path: Path) -> None:
    write(prompts, a="{% include 'b.md' %}", b="B")
    (tmp_path / "link").symlink_to(prompts)
    assert get_prompt("a", prompts_dir=tmp_path / "link") == "B"


def test_a_circle_is_refused_with_its_chain(prompts: Path) -> None:
    write(prompts, t="{% include 'a.md' %}", a="x\n{% include 'b.md' %}", b="{% include 'sub/../a.md' %}")
    (prompts / "sub").mkdir()
    with pytest.raises(PromptError, match=r"b\.md:1: includes go in a circle: a\.md -> b\.md -> a\.md"):
        get_prompt("t")
    write(prompts, self="{% include 'self.md' %}")
    with pytest.raises(PromptError, match=r"self\.md -> self\.md"):
        get_prompt("self")


def test_nesting_has_an_end(prompts: Path) -> None:
    for number in range(10_000):
        (prompts / f"{number}.md").write_text(f"{{% include '{number + 1}.md' %}}")
    (prompts / "10000.md").write_text("deep")
    with pytest.raises(PromptError, match=f"nested more than {MAX_DEPTH} deep"):
        get_prompt("0")
    assert get_prompt(str(10_001 - MAX_DEPTH)) == "deep"


@pytest.mark.parametrize("leaf", ["", "x", "{x}"])
def test_includes_that_double_cannot_take_all_memory(prompts: Path, leaf: str) -> None:
    for number in range(40):
        (prompts / f"{number}.md").write_text(f"{{% include '{number + 1}.md' %}}" * 2)
    (prompts / "40.md").write_text(leaf)
    if leaf:
        with pytest.raises(PromptError, match="characters with its includes, the limit is"):
            get_prompt("0", x=1)
    else:
        assert get_prompt("0") == ""


def test_a_file_of_50_mb_is_refused_unread(prompts: Path) -> None:
    with (prompts / "t.md").open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(PromptError, match=f"50000000 bytes are too many for a template, the limit is {MAX_SIZE}"):
        get_prompt("t")


@pytest.mark.parametrize(
    "unit",
    ["{", "}", "{{", "{{}", "{%", "{% ", "{% include '", "{%a", "{a", "{% include 'a", "a", '{% include "a{', "{%-"],
)
def test_a_large_template_of_anything_is_read(prompts: Path, unit: str) -> None:
    """A search that went back at every brace would need hours here."""
    text = unit * (MAX_SIZE // 32 // len(unit))
    with pytest.raises(PromptError, match="is not a directive") if "include" in unit else nullcontext():
        assert load(prompts, text) == text


@pytest.mark.parametrize(
    "text",
    [
        "{% include x.md %}",
        "{% include %}",
        "{% include 'x.md' ",
        "{% include 'x.md\" %}",
        "{% extends 'x' %}",
        "{% if x %}",
        "{%- endif -%}",
        "{% include '' %}",
        "{% include 'a{b}.md' %}",
        "{% include 'x.md' ignore missing %}",
    ],
)
def test_a_directive_that_is_none_is_refused_by_its_line(prompts: Path, text: str) -> None:
    with pytest.raises(PromptError, match=r"t\.md:3: .* is not a directive; write"):
        load(prompts, f"\n\n{text}")


def test_a_template_that_is_not_there_is_named(prompts: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing.md: no such template") as raised:
        load_prompt("nothing.md")
    assert isinstance(raised.value, PromptError)
    with pytest.raises(PromptNotFoundError, match=r"t\.md:1: no template 'x\.md' in the prompts directory"):
        load(prompts, "{% include 'x.md' %}")
    (prompts / "folder.md").mkdir()
    with pytest.raises(PromptNotFoundError):
        get_prompt("folder")


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b", "\ud800", ""])
def test_a_name_that_no_file_has_is_not_found(prompts: Path, name: str) -> None:
    with pytest.raises(PromptNotFoundError):
        get_prompt(name)
    with pytest.raises(PromptNotFoundError):
        load_prompt(name)


def test_what_is_no_utf_8_is_refused_and_a_byte_order_mark_is_not_text(prompts: Path) -> None:
    (prompts / "t.md").write_bytes(b"caf\xe9")
    with pytest.raises(PromptError, match=r"t\.md: byte 3 is not UTF-8"):
        get_prompt("t")
    (prompts / "t.md").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert get_prompt("t") == "café"


# `ctxguard prompts check`.


def test_check_says_what_each_template_needs_and_costs(prompts: Path) -> None:
    write(prompts, a="{x} {% include 'shared/b.md' %} {% include 'shared/b.md' %}", shared__b="{y} two words")
    report = check_prompts(prompts, EstimateCounter())
    assert report.ok
    first, second = report.templates
    assert (first.name, first.variables) == ("a.md", ("x", "y"))
    assert (second.name, second.variables) == ("shared/b.md", ("y",))
    assert first.tokens == EstimateCounter().count("{x} {y} two words {y} two words")


def test_check_finds_every_problem_once(prompts: Path, secret: Path) -> None:
    write(
        prompts,
        a="{% include 'gone.md' %}\n{% include '../secret.md' %}{% include 'shared/used.md' %}",
        b="{% include 'a.md' %}",
        c="{% if %}",
        d="{% include 'd.md' %}",
        shared__used="",
        shared__unused="",
        shared__deep__unused="",
    )
    (prompts / "latin.md").write_bytes(b"\xff")
    write(prompts / ".hidden", x="{% if %}")
    found = check_prompts(prompts, EstimateCounter()).problems
    for expected in (
        "a.md:1: no template 'gone.md'",
        "a.md:2: '../secret.md' is outside",
        "c.md:1: '{% if %}' is not a directive",
        "d.md:1: includes go in a circle: d.md -> d.md",
        "latin.md: byte 0 is not UTF-8",
        "shared/unused.md: unused",
        "shared/deep/unused.md: unused",
    ):
        assert len([problem for problem in found if problem.startswith(expected)]) == 1, expected
    assert len(found) == 7
    quieter = check_prompts(prompts, EstimateCounter(), entries=["*.md", "shared/**/*.md"]).problems
    assert len(quieter) == 5


def test_check_finds_every_problem_of_a_template_with_a_misspelt_directive(prompts: Path) -> None:
    write(
        prompts,
        a="{% inlude 'x.md' %}\n{% include 'gone.md' %}\n{% include 'shared/used.md' %}\n{% include shared/used.md %}",
        shared__used="",
    )
    problems = check_prompts(prompts, EstimateCounter()).problems
    assert [problem.partition(";")[0].partition(" in the")[0] for problem in problems] == [
        "a.md:1: \"{% inlude 'x.md' %}\" is not a directive",
        "a.md:2: no template 'gone.md'",
        "a.md:4: '{% include shared/used.md %}' is not a directive",
    ]


def test_the_command_exits_0_1_and_2(prompts: Path) -> None:
    runner = CliRunner()
    write(prompts, t="Hello {name}")
    good = runner.invoke(app, ["check", "prompts"])
    assert good.exit_code == 0
    assert re.search(r"t\.md +\d+ tokens  variables: name\n1 template, tokens by .*; 0 problems", good.stdout)
    assert runner.invoke(app, ["check"]).stdout == good.stdout
    write(prompts, shared__x="")
    bad = runner.invoke(app, ["check", "prompts"])
    assert bad.exit_code == 1
    assert "shared/x.md: unused" in bad.stdout
    assert runner.invoke(app, ["check", "prompts", "--entry", "**/*.md"]).exit_code == 0
    (prompts.parent / "empty").mkdir()
    for wrong in (["missing"], ["empty"], ["prompts", "--counter", "nonsense"]):
        failed = cli("prompts", "check", *wrong)
        assert failed.returncode == 2
        assert failed.stderr.count("\n") == 1


# The documentation.

PAGE = Path(__file__).parents[2] / "docs" / "prompts.md"


@pytest.mark.slow
def test_the_page_on_prompts_is_true(prompts: Path) -> None:
    """Its templates are written where it says, and its programs run on them in order."""
    pytest.importorskip("pydantic_ai", reason="docs/prompts.md: pydantic-ai is not installed")
    pytest.importorskip("langchain_core", reason="docs/prompts.md: langchain-core is not installed")
    page = PAGE.read_text(encoding="utf-8")
    for title, text in re.findall(r'```markdown title="(.*?)"\n(.*?)```', page, re.DOTALL):
        Path(title).parent.mkdir(parents=True, exist_ok=True)
        Path(title).write_text(text, encoding="utf-8")
    names: dict[str, object] = {}
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(program, names)
    counter = find_counter()
    shown = re.search(r"check prompts\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    if counter.name in shown[1]:
        assert CliRunner().invoke(app, ["check", "prompts"]).stdout == shown[1]
