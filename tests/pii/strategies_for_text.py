"""Texts with personal data, placeholders and noise in any order, for property tests."""

from hypothesis import strategies as st

VALUES = [
    "jane.doe@site.org",
    "Jane.Doe@Site.org",
    "+44 20 7123 4567",
    "(212) 736-5000",
    "4111 1111 1111 1111",
    "536-22-8741",
    "DE89 3704 0044 0532 0130 00",
    "203.0.113.9",
    "2001:db8::17",
    "3c:22:fb:0a:9e:41",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "https://bob:s3cr3tpw@host.example/x",
    "12345678Z",
    "12345",
]
NOISE = [
    "<EMAIL_1>",
    "<PHONE_2>",
    "<LITERAL_1>",
    "[REDACTED_SSN]",
    "[REDACTED]",
    "<",
    ">",
    "@",
    "-",
    ".",
    " ",
    "\n",
    "\\",
    '"',
    ":",
]
WORDS = ["ssn", "phone", "card", "password: ", "order id ", "born ", "\u200b", "é", "１", "x", "7", "\\u0040", "{", "}"]

pieces = st.one_of(
    st.sampled_from(VALUES),
    st.sampled_from(NOISE),
    st.sampled_from(WORDS),
    st.text(max_size=6),
    st.text("0123456789 -./", max_size=24),
)
texts = st.lists(pieces, max_size=12).map("".join)


def chunks_of(data, text):
    """Cut a text into chunks anywhere."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
