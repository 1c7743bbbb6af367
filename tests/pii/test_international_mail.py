"""E-mail addresses in any script: top-level domains, hosts, and local parts."""

import pytest

from ctxguard.pii import STANDARD, mask_pii, validate_no_pii

ADDRESSES = [
    *("ann@例子.公司", "ann@例子.香港", "ann@例子.中国", "ann@例子.嘉里大酒店", "ann.roe+x@例子.新加坡", "ann@example.中国"),
    *("ann@例え.みんな", "ann@例え.コム", "ann@예.한국", "ann@예시.닷컴", "ann@उदाहरण.कॉम", "ann@उदाहरण.भारत", "ann@उदाहरण.com"),
    *("ann@مثال.السعودية", "ann@דוגמה.ישראל", "ann@ตัวอย่าง.ไทย", "ann@ຕົວຢ່າງ.ລາວ", "ann@উদাহরণ.বাংলা", "ann@உதாரணம்.சிங்கப்பூர்"),
    *("ann@ලංකා.ලංකා", "ann@მაგალითი.გე", "ann@օրինակ.հայ", "ann@пример.рф", "ann@приклад.укр", "ann@παράδειγμα.ελ"),
    *("ann@xn--fsqu00a.xn--fiqs8s", "ann＠例子．公司", "ann@例子。中国", "ann@beratung.vermögensberatung", "jose\u0301@example.com"),
    *("用户@例子.中国", "用户1@例子.中国", "संपर्क@उदाहरण.कॉम", "मेल.टेस्ट@उदाहरण.भारत", "اتصال@مثال.السعودية", "почта@пример.рф"),
    *("사용자@예.한국", "ผู้ใช้@ตัวอย่าง.ไทย", "ann\u200f@\u200eمثال.السعودية"),
]  # fmt: skip
FRAMES = ["{}", "write to {} now", "Mail: {}.", "<{}>", "“{}”", "mailto:{}?x=1", '{{"mail": "{}"}}', "| {} |", "**{}**"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_in_any_script_is_masked_whole(address):
    for frame in FRAMES:
        assert mask_pii(frame.format(address), STANDARD) == frame.format("[REDACTED_EMAIL]")
    assert not validate_no_pii(f"write to {address} now", STANDARD)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("联系ann@corp.net谢谢", "联系[REDACTED_EMAIL]谢谢"),
        ("邮箱12345@qq.com谢谢", "邮箱[REDACTED_EMAIL]谢谢"),
        ("发到ann@corp.com。谢谢", "发到[REDACTED_EMAIL]。谢谢"),
        ("ann@例子.公司，谢谢", "[REDACTED_EMAIL]，谢谢"),
        ("ann@\u2067مثال.السعودية\u2069 ok", "[REDACTED_EMAIL]\u2069 ok"),
    ],
)
def test_the_text_beside_an_address_stays(text, masked):
    assert mask_pii(text, STANDARD) == masked


@pytest.mark.parametrize("rest", ["谢谢", "谢谢大家的支持", "으로 보내", "ครับ"])
def test_an_address_is_masked_where_text_follows_directly(rest):
    address = {"으": "ann@예.한국", "ค": "ann@ตัวอย่าง.ไทย"}.get(rest[0], "ann@例子.公司")
    masked = mask_pii(f"{address}{rest}", STANDARD)
    # nothing tells where the domain ends: a few characters of the text may go along
    assert masked.startswith("[REDACTED_EMAIL]")
    assert rest.endswith(masked.removeprefix("[REDACTED_EMAIL]"))


@pytest.mark.parametrize(
    "text",
    [
        *("邮箱后缀是@qq.com", "登录 root@server。然后运行命令", "转发@张三。今天天气好", "价格@5.00元", "mean @ 3.5。好"),
        *("@dataclass.对象", "pkg@1.2.3中文", "decorator@模块.函数(x)", "foo@bar.方法()", "@app.route", "a@b.c", "x = m@n.T"),
        *("git@github.com:a/b.git", "logo@2x.png", "图标logo@2x.png"),
    ],
)  # fmt: skip
def test_mentions_and_programs_are_no_addresses(text):
    assert mask_pii(text, STANDARD) == text
