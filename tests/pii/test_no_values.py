"""Nothing is found that is no value: what strangers' programs, tables, and documents hold in the form of one."""

from __future__ import annotations

import pytest

from ctxguard.pii import STANDARD

ROWS = "\n".join
NO_VALUES = {
    "weights of collation": ROWS(
        f"{code:04X}      ; [.{weight:04X}.0020.000{level}] # LATIN SMALL LETTER"
        for code, weight, level in ((0x10D, 0x1FD7, 2), (0x453, 0x23BB, 8), (0xE4, 0x1FA3, 2))
    ),
    "variable weights": "0020  ; [*0209.0020.0002] # SPACE\n1FD7 ; [!1FD7.0020.0002][.0000.0029.0002]",
    "boxes of glyphs": "C 35 ; WX 554 ; N numbersign ; B 66 0 618 700 ;\nC 92 ; WX 640 ; N backslash ; B 233 -100 525 740 ;",
    "more boxes": "C 167 ; WX 560 ; N section ; B 65 -158 602 755 ;\nC 174 ; WX 240 ; N guilsinglright ; B 70 108 253 469 ;",
    "code points": '"\\x{0391}\\x{0342}\\x{0399}", # U+1FB7 => 0391 0342 0399\n0390; F; 0399 0308 0301; # GREEK',
    "a version beside a number": "src/testdir/test_number.vim\n\nPatch 8.2.3358\nProblem: none",
    "a release": "the pager of numbers.\n\n## 95.0.0 (2016-2-3)\n\n### Breaking",
    "pages of a journal": "Amer. Math. Monthly 77, 259-264 1970.",
    "clauses": "// 27.7.3.3 Assign/swap\n * 27.7.3.9 Rvalue stream insertion\n// C++11 [27.7.3.9] Rvalue\nfetch step 12.1.1.3",
    "a constant": "   *   FT_LCD_FILTER_DEFAULT ::\n   *     This is the default",
    "a type": "    xen_domain_handle_t handle;\n    vki_uint32_t flags;\nuser_name: my_uint32_t",
    "a reference": "contains symbolic links (c.f., CVE-2022-39253), the objects",
    "a code point in hexadecimal": "(0x02712, 0x02712,),  # Black Nib\n    (0x02714, 0x02714,),",
    "types of resources": '"AWS::ApiGateway::ApiKey": "48205d4ffd7feba3",\n"AWS::IAM::User": "fa88f766d15e3dd7"',
    "a serial number": "Serial Number:\n            cb:2d:80:99:5a:69:52:61\n        Signature",
    "bytes of a buffer": "// Prints: <Buffer 01 02 03 04 05>",
    "a cookie made of words": 'Set-Cookie: Part_Number="Rocket_Launcher_0001"; Version="1"',
    "a decimal": "can002 apply 0 -> #2238000000000000",
    "a list of services": ROWS(
        f"syn keyword\tservice\t{name}" for name in ("imap", "ftp", "pop2", "kpasswd", "krb524", "ospf6d", "x400-snd")
    ),
    "a list of settings": ROWS(
        f'     "{name}",' for name in ("make", "mbuild", "pager", "password", "patch", "perl5lib_x")
    ),
    "a list of names": ROWS(
        f"(define {name}, 1)" for name in ("car", "cdr", "vector", "string", "password", "hash2x", "base64x")
    ),
    "clauses in brackets": "[27.6.1.3] unformatted input\n(26.5.1.3).\n/// 21.1.3.1  char_traits\n// 4.2.6.10\nIdem 8.2.4.52: a dash",
    "a version in a cell": "<version>3.2.17.0</version>\nCMake 2.8.10.2 and lower\non disk\tcublas\t13.1.1.3\ndpkg (1.15.4.1)",
    "object identifiers": '#define X520_OID_TITLE "2.5.4.12"\nOID_KEY_USAGE = "2.5.29.15"\nprim: OBJECT            :1.3.101.110',
    "a row of versions": "4.0.100 4.0.102.1 4.0.103\t4.0.103.4",
    "places on the earth": "CN\t+4348+08735\tAsia\nTZ\t-0833+12535\tDili\nBR\t-0343-03830\tX\nUS\t+550737-1313435\tY\n+5333-11328",
    "decimals with a sign": "+3.140000; +2.00100000000 -> +4949.0 and +35236450.6 -2, +10011010010",
    "boxes of rings": "N ring ; B 73 619 288 834 ;\nCC Aring 2 ; PCC A 0 0 ; PCC ring 190 135 ;",
    "boxes of accents": "C 167 ; WX 760 ; N a108 ; B 0 121 758 569 ;",
    "colors": "180 205 205\t\tLightCyan3\n139 137 137\t\tsnow4\n255 140 105\t\tsalmon1",
    "versions behind a word for calls": "a function call.\tcontact-lens\t3.1023.0\tOffice 97-2003\tnumbers 2.14.1 3.0.1 3.0.10",
    "numbers of builds": 'VS 16.11.10 has build number ``16.11.32126.315``.\nsearch number ("123 3.1416 789")',
    "numbers of standards": "document numbers ISO/IEC IS\n10918-1, ITU-T T.871 (05/2011)\nJIS X 0208/0201/0212 designations",
    "requirements": "/* IMP: R-03371-37637 */",
    "a range from zero": "Port number ranges (must be 0–65535)",
    "a line of passwd": "redis:x:102:105::/var/lib/redis:/usr/sbin/nologin\ncloudsdk:x:1000:1000::/home/cloudsdk:/bin/bash",
    "a literal block": ".. _IS_PREFIX:\n\n::\n\n  cmake_path(IS_PREFIX a b)",
    "names of algorithms": "aes256-gcm@openssh.com, rsa-sha2-512-cert-v01@openssh\\.com curve25519-sha256@libssh.org\n-cert-v01@openssh.com",
    "packages of a distribution": "pkg:rpm/almalinux/libquadmath@8.5.0-28.el8_10.alma.1",
    "files of arguments": "po/en@boldquot.header\nzip -x@exclude.lst -i@include.lst",
    "a template of addresses": "'<%d@dom.ain>' % number, '%s@example.org' % name",
    "the mark of a key": 'START = "-----BEGIN RSA PRIVATE KEY-----"\nEND = "-----END RSA PRIVATE KEY-----"\nand "-----BEGIN PRIVATE KEY-----...",',
    "a key left out": "key=-----BEGIN PRIVATE KEY-----\\nXXXX\\nXXXX\\n-----END PRIVATE KEY-----",
    "arguments of a call": '            self.password,\n            secret=secret,\n            algorithm="sha256",\n        )',
    "lines of calls": "this.delete(`${a}:_password`, 'user')\nthis.delete(`${a}:username`, 'user')\nthis.delete(`${a}:mail2x`, 'user')",
    "a call behind a word": "$newpwd = Win32::GetFullPathName($newdir);",
    "selectors": "input[type=password]:focus,input[type=search]:focus,input[type=text]:focus{outline:0}",
    "a word beyond ASCII": 'msgstr "Parool on määramata."',
    "scopes of packages": "@codemod.com/cli-linux-x64-gnu\t1.18.3\n@builder.io/dev-tools-linux-x64\t1.86.4",
    "names of settings": '"session-token": "s3.session-token",\n"secret-key": "s3.secret-access-key",\ntoken: imdsv2_session_token\nON_TOKEN = P11_KIT_URI_FOR_OBJECT\nat_token: PKCS15Token()',
    "keys of a mapping": '50217: "Oce Identification Number",\n    50218: "Oce ImageLogic",',
    "a digest": "x/_ext.py,sha256=Tl0OcpZT6MwL4ykbPDeoYJk9a8N7YWq0t7ED3X21-ic,23513\r\nx/_sam.py",
    "a release of a registrar": "github.com/baidubce/bce-sdk-go\tv0.9.278\tv0.9.234\tCR v1.20.3400",
    "an exponent": "subtract -9627363.00 -80616885E-749891394 -> -9627363.00",
    "a flag of a driver": "(TV_YPBPR525I | TV_YPBPR1080I)",
    "names of licenses": '"license_key": "sun-bcl-sdk-5.0",\n"spdx_license_key": "LicenseRef-scancode-dl-de-by-1-0-de",',
    "more names of licenses": '"license_key": "CC-BY-ND-3.0-DE", "license_key": "vs10x-code-map", "license_key": "w3c-03-bsd-license"',
    "slugs": '"auth_token": "auth_tokens/tok_123",\n"api_key": "secret_key_123",\napi_key: info-zip-2007-03',
    "ideographs in hexadecimal": "52DD 5320 5347 53EC\n54E8 5546 5531 5617 5968 59BE 5A3C\n921E 9215 9211 925E 9257 9245 9249\n9264 9248",
    "codes of operations": "(add FORMAT_VALUE opcode #25483)\nUC_HOOK_TCG_OPCODE = '65536'\n#define MAX_RUNNABLE_OPCODES  1000000L",
    "negative numbers": "RPC_E_UNSECURE_CALL: Final = -2147417832\nE_MBN_SMS_NETWORK_TIMEOUT = -2141945307\nCALL(-2147417832)",
    "code points with hyphens": '"unicode_alt": "0030-20e3"',
    "anchors of releases": "#version-07-2013-07-03 #version-0120-2014-10-09 #version-0110-2014-07-02",
    "pages": "bulge chasing is explained at p.398/399 in",
    "months": "AUTHOR Jan Woetzel (07/2003-01/2006)",
    "repeated groups": "d.get_both('0555', '0555-0555-0555-0555-0555')",
    "fractions of code points": "215E\t\t<fraction> 0037 2044 0038",
    "points of a polygon": 'points="1040,277.764 1035,267.764 1040,270.264 1045,267.764"',
    "an issue behind a sentence": "present for custom-call.\n    TODO(b/189822916): Remove\nin a function call.\n@babel/helpers\t8.1.2\t489190415",
    "faces of a mesh": "nf 286 276 314\nf 314 289 315 \nf 327 337 358 \nf 346 329 360",
    "files of a project": "include(${DIR}/@contentName@Extra.cmake OPTIONAL)",
    "releases of an engine": "**deps**: update V8 to 9.4.146.26\npatch V8 from 9.4.146.24 to 9.4.146.26",
    "names with two colons": "arn:aws:servicequotas:us-east-2::ec2/L-1216C47A (matches .acc::f16 in)",
    "types of integers": "#define OBJ_userPassword                OBJ_X509,35L\nusername: PRUint32",
    "a table of constants": "#define OBJ_setct_PANToken              OBJ_set_ctype,1L\n#define OBJ_a              OBJ_b,2L",
    "names of classes": '    "OAuth2Token",\n    "OAuth2Request",\n    "OAuth2Error",',
    "numbers that a program forbids": "tin === '33333333333' || tin === '44444444444' || cnp: 0000000000000",
    "fields of a form": "input:{type:{text:1,password:1,hidden:1,checkbox:1,submit:1}}",
    "parts of a list": "password = _auth$split2[1];\nregexes[token] = isFunction$1(regex)",
    "names in a list": "    token,\n    match1to2,\n    match1to2HasZero,\n    match1to2NoLeadingZero,\n",
    "a range from one": "column number must be in range 1-16384",
    "arguments by name": "        user_password=None,\n        encryption_method=EncryptionMethod.RC4,\n",
    "packages of an architecture": "status installed libxmlsec1-nss:amd64 1.2.37-2\nlibcurl3-nss:amd64 7.88.1-10",
    "a line of a program": '    base_url=self.url,\n    api_key=self.openai_api_key,\n    provider_path="openai/v1Xy9",\n',
}
VALUES = {
    "3c22.fb91.a07e is its address": "MAC",
    "the switch (0c22.fb91.a07e)": "MAC",
    "SIN 130 692 544": "CA_SIN",
    "it is 130-692-544, he said": "CA_SIN",
    "numbers: 212 736 5000": "PHONE",
    "call 212-736 5000": "PHONE",
    "# 27.7.30.3 is up": "IP",
    "connect to 27.7.3.3 now": "IP",
    '5.9.11.7 - - [10/Oct/2026] "GET / HTTP/1.1"': "IP",
    'sock = ("5.9.11.7", 8080)': "IP",
    "Received: from mail.example.org [5.9.11.7]": "IP",
    "http://5.9.11.7/index": "IP",
    "5.9.11.0/24 is theirs": "IP",
    "10.4.0.35 answers": "IP",
    "5.39.84.127 answers": "IP",
    "call -2125550123": "PHONE",
    "Tel. 0221/4711-223": "PHONE",
    "his card 5546 5531 5617 5968": "CREDIT_CARD",
    "order 2026 5546 5531 5617 5968": "CREDIT_CARD",
    "CAFE 5546 5531 5617 5968 59th": "CREDIT_CARD",
    "SIN 314 289 315": "CA_SIN",
    "tin: 33333333334": "TAX_ID",
    "password: 1,hidden-7Xk!q": "PASSWORD",
    "license_key: ABCDE-FGHKM-12345-QRSTU": "SECRET",
    "api_key: aBcDe-FgHiJk-LmN0p": "SECRET",
    "secret: sun-bcl-8f7a6b5c4d3e2f1a": "SECRET",
    "api_key: a1b2-c3d4-e5f6-a7b8": "SECRET",
    "2001::5 is up": "IP",
    "fe80::f16": "IP",
    "64:ff9b::1": "IP",
    "+1.2125550123": "PHONE",
    "+39.0612345678": "PHONE",
    "+4940-123456": "PHONE",
    "Tel. 12345-67": "PHONE",
    "ring 030 190135": "PHONE",
    "2001:db8:105::/48": "IP",
    "his SIN is 180 205 205": "CA_SIN",
    "root@openssh.com": "EMAIL",
    "jane.aes@openssh.com": "EMAIL",
    "a%40b.example.org and 50%jane@example.org": "EMAIL",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj": "PRIVATE_KEY",
    "user,password\njane,mail2x(7)!": "PASSWORD",
    "token: imdsv2_9f8a7b6c5d4e": "SECRET",
    "// 10.20.30.40 is the host": "IP",
    "name,password\njane,Xk7!qzTm2": "PASSWORD",
    "one, two\nname,password\njane,Xk7!qzTm2": "PASSWORD",
    "username: jdoe_t42": "USERNAME",
    "codice fiscale RSSMRA85T10A562S": "IT_FISCAL_CODE",
    "card 6011000400000000": "CREDIT_CARD",
}


@pytest.mark.parametrize("what", NO_VALUES)
def test_what_only_has_the_form_of_a_value_is_not_found(what):
    text = NO_VALUES[what]
    assert [(span.label, text[span.start : span.end]) for span in STANDARD.find(text)] == []
    assert not STANDARD.scan(text)


@pytest.mark.parametrize("text", VALUES)
def test_what_is_a_value_is_found(text):
    assert VALUES[text] in [span.label for span in STANDARD.find(text)]
