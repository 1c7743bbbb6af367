"""Credentials: keys and tokens by the form their providers document, or by the word before them.

A rule set for all of gitleaks' rules can be made from its own rule file with `load_gitleaks`.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.passwords import PASSWORD_RULES
from ctxguard.pii.rules.rule import shipped
from ctxguard.pii.rules.words import token

_HERE: Final = "ctxguard.pii.detect.validate:"
_A: Final = "[A-Za-z0-9]"
_W: Final = "[A-Za-z0-9_-]"
_H: Final = "[0-9a-f]"
_X: Final = "[0-9a-fA-F]"
_FORMS: Final = (
    ("openai", rf"sk-(?:proj|svcacct|admin|None)-{_W}{{20,200}}|sk-{_A}{{20}}T3BlbkFJ{_A}{{20}}|sk-{_A}{{32,64}}"),
    ("anthropic", rf"sk-ant-(?:api|admin|oat|ort|sid)\d\d-{_W}{{20,150}}"),
    ("openrouter", rf"sk-or-v\d-{_H}{{64}}"),
    ("langsmith", rf"lsv2_(?:pt|sk)_{_H}{{32}}_{_H}{{10}}"),
    ("groq", rf"gsk_{_A}{{52}}"),
    ("xai", rf"xai-{_A}{{80}}"),
    ("perplexity", rf"pplx-{_A}{{48}}"),
    ("replicate", rf"r8_{_A}{{37}}"),
    ("cerebras", rf"csk-{_A}{{48}}"),
    ("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z2-7]{16}"),
    ("google-api", r"AIza[A-Za-z0-9_-]{35}"),
    ("google-oauth", rf"ya29\.{_W}{{20,300}}|GOCSPX-{_W}{{28}}"),
    ("google-client", r"\d{10,14}-[a-z0-9]{32}\.apps\.googleusercontent\.com"),
    (
        "github",
        rf"gh[pousr]_(?:{_A}{{36,255}}|\d{{1,20}}_eyJ{_W}{{14,2000}}\.eyJ{_W}{{10,2000}}\.{_W}{{20,2000}})|github_pat_\w{{60,255}}",
    ),
    ("gitlab", rf"gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|oas|soat|ffct)-{_W}{{20,150}}|GR1348941{_W}{{20}}"),
    ("bitbucket", rf"ATBB{_A}{{32}}|ATCTT3xFfG{_W}{{100,250}}"),
    ("atlassian", r"ATATT3[A-Za-z0-9_=-]{100,250}"),
    ("slack", rf"xox[abeoprs]-(?:\d-)?{_W}{{10,250}}|x(?:app|wfp)-\d-{_W}{{20,150}}"),
    ("stripe", rf"(?:sk|rk|pk)_(?:live|test|prod)_{_A}{{10,99}}|whsec_{_A}{{32,64}}"),
    ("twilio", rf"SK{_X}{{32}}|AC{_H}{{32}}"),
    ("sendgrid", r"SG\.[A-Za-z0-9=_.-]{66}"),
    ("mailgun", rf"(?:pub)?key-{_H}{{32}}"),
    ("mailchimp", rf"{_H}{{32}}-us\d{{1,2}}"),
    ("sendinblue", rf"xkeysib-{_H}{{64}}-{_A}{{16}}"),
    ("discord", rf"[MNO]{_W}{{23,25}}\.{_W}{{6}}\.{_W}{{27,38}}"),
    ("telegram", rf"\d{{8,10}}:A{_W}{{34}}"),
    ("npm", rf"npm_{_A}{{36}}"),
    ("pypi", rf"pypi-AgEI{_W}{{50,1000}}"),
    ("rubygems", rf"rubygems_{_H}{{48}}"),
    ("crates", rf"cio{_A}{{32}}"),
    ("nuget", r"oy2[a-z0-9]{43}"),
    ("docker", rf"dckr_(?:pat|oat)_{_W}{{27,40}}"),
    ("shopify", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("square", rf"(?:sq0[a-z]{{3}}-{_W}{{22,60}}|EAAA(?<![+/]EAAA){_W}{{60}}(?![+/=]))"),
    ("digitalocean", rf"do[opr]_v1_{_H}{{64}}"),
    ("doppler", rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{{2,35}}\.)?{_A}{{40,44}}"),
    ("databricks", rf"dapi{_H}{{32}}(?:-\d)?"),
    ("hashicorp", rf"hv[sbr]\.{_W}{{24,300}}|{_A}{{14}}\.atlasv1\.{_W}{{60,70}}"),
    ("heroku", rf"HRKU-{_W}{{36,66}}"),
    ("grafana", rf"gl(?:c|sa)_{_A}{{32,400}}(?:_[A-Fa-f0-9]{{8}})?|eyJrIjoi{_A}{{70,400}}"),
    ("newrelic", r"NR(?:AK|AA|JS|II|RA)-[A-Za-z0-9]{19,32}"),
    ("sentry", rf"sntry[su]_{_W}{{60,400}}"),
    ("postman", rf"PMAK-{_H}{{24}}-{_H}{{34}}"),
    ("pulumi", rf"pul-{_H}{{40}}"),
    ("planetscale", rf"pscale_(?:tkn|pw|oauth)_{_W}{{32,64}}"),
    ("supabase", rf"sb(?:p|_secret)_{_W}{{20,64}}"),
    ("linear", rf"lin_(?:api|oauth)_{_A}{{40,64}}"),
    ("notion", rf"(?:secret_{_A}{{43}}|ntn_{_A}{{46}})"),
    ("figma", rf"fig[dour]{{1,2}}_{_W}{{40,80}}"),
    ("airtable", rf"pat{_A}{{14}}\.{_H}{{64}}"),
    ("asana", r"[0-2]/\d{16}(?:/\d{16})?:[a-f0-9]{32}"),
    ("tailscale", rf"tskey-(?:auth|api|client|scim|webhook)-{_A}{{6,20}}-{_A}{{20,40}}"),
    ("fly", rf"fo1_{_W}{{43}}|FlyV1_{_W}{{40,400}}|fm[12][ar]?_[A-Za-z0-9+/]{{100,500}}={{0,3}}"),
    ("vercel", rf"vc[kpair]_{_A}{{24,64}}"),
    ("netlify", rf"nf[pc]_{_A}{{36,40}}"),
    ("render", rf"rnd_{_A}{{20,40}}"),
    ("dynatrace", rf"dt0[a-z]\d\d\.{_A}{{24}}\.{_A}{{64}}"),
    ("adafruit", rf"aio_{_A}{{28}}"),
    ("age", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    ("clojars", rf"CLOJARS_{_A}{{60}}"),
    ("duffel", rf"duffel_(?:test|live)_{_W}{{43}}"),
    ("easypost", rf"EZ[AT]K{_A}{{54}}"),
    ("facebook", rf"EAA(?<![+/]EAA)[MC]?{_A}{{60,250}}(?![+/=])"),
    ("flutterwave", rf"FLW(?:SECK|PUBK)(?:_TEST)?-{_A}{{12,40}}(?:-X)?"),
    ("frameio", rf"fio-u-{_W}{{64}}"),
    ("infracost", rf"ico-{_A}{{32}}"),
    ("jfrog", rf"AKCp{_A}{{69}}|cmVmd{_A}{{59}}"),
    (
        "onepassword",
        rf"ops_eyJ{_W}{{50,1000}}|A3-[A-Z0-9]{{6}}-(?:[A-Z0-9]{{11}}|[A-Z0-9]{{6}}-[A-Z0-9]{{5}})(?:-[A-Z0-9]{{5}}){{3}}",
    ),
    ("prefect", rf"pn[bu]_{_A}{{36}}"),
    ("readme", r"rdme_[a-z0-9]{70}"),
    ("scalingo", rf"tk-us-{_W}{{48}}"),
    ("shippo", rf"shippo_(?:live|test)_{_X}{{40}}"),
    ("sourcegraph", rf"sgp_(?:(?:local|{_X}{{16}})_)?{_X}{{40}}|slk_{_X}{{64}}"),
    ("typeform", rf"tfp_{_W}{{44,59}}"),
    ("yandex", rf"AQVN{_W}{{35,38}}|t1\.{_W}{{2,}}?[-_A-Za-z0-9]{{20,400}}={{0,2}}\.{_W}{{86}}={{0,2}}"),
    ("alibaba", rf"LTAI{_A}{{17,21}}"),
    ("tencent", rf"AKID{_A}{{32}}"),
    ("cloudflare", rf"v1\.0-{_H}{{24}}-{_H}{{146}}"),
    ("elastic", rf"essu_{_W}{{40,120}}"),
    ("launchdarkly", rf"(?:api|sdk|mob)-{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"),
    ("plaid", rf"access-(?:sandbox|development|production)-{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"),
    ("contentful", rf"CFPAT-{_W}{{43}}"),
    ("lob", rf"(?:live|test)(?:_pub)?_{_H}{{31,35}}"),
    ("harness", rf"[ps]at\.{_W}{{22}}\.{_A}{{24}}\.{_A}{{20}}"),
    (
        "authress",
        rf"(?:sc|ext|scauth|authress)_[a-z0-9]{{5,30}}\.[a-z0-9]{{4,6}}\.acc[_-][a-z0-9-]{{10,32}}\.{_W}{{30,120}}",
    ),
    ("bedrock", r"ABSK[A-Za-z0-9+/]{100,280}={0,2}|bedrock-api-key-[A-Za-z0-9]{20,2000}"),
    ("clickhouse", rf"4b1d{_A}{{38}}"),
    ("defined-networking", r"dnkey-[A-Za-z0-9=_-]{26}-[A-Za-z0-9=_-]{52}"),
    ("intra42", rf"s-s4t2(?:ud|af)-{_H}{{64}}"),
    ("maxmind", rf"{_A}{{6}}_{_A}{{29}}_mmk"),
    ("octopus", r"API-[A-Z0-9]{26}"),
    ("settlemint", rf"sm_[aps]at_{_A}{{16}}"),
    ("adobe", r"p8e-[a-z0-9]{32}"),
    ("sonar", rf"sq[upa]_{_W}{{40}}"),
    ("mapbox", rf"[ps]k\.eyJ{_W}{{40,160}}\.{_W}{{20,30}}"),
    ("dropbox", rf"sl\.(?:u\.)?{_W}{{130,300}}"),
    ("twitter", r"A(?<![+/]A)A{19,23}[A-Za-z0-9%]{60,120}(?![+/=])"),
    ("base64-jwt", r"ZXlK[A-Za-z0-9]{60,2000}"),
    ("rapidapi", rf"{_A}{{10}}msh{_A}{{15}}p1{_A}{{6}}jsn{_A}{{12}}"),
)
_PREFIXES: Final = (
    "api|access|account|auth|encryption|master|private|service|license|secret|subscription|signing|shared"
)
# Words before `token` that make it a place in a list or the name of a request: who goes on from there needs it.
_NO_PLACE: Final = "".join(
    rf"(?<!{word})(?<!{word}[_-])"
    for word in ("page", "continuation", "sync", "resume", "request", "change", "lock", "idempotency")
)
# Word in the text, and the name it is part of.
_NAMED: Final = (
    ("secret", r"(?<![A-Za-z0-9_:-])[A-Za-z0-9_-]{0,40}?secret(?:[_-]?(?:access[_-]?)?key)?"),
    ("token", rf"(?<![A-Za-z0-9_-])(?!next)[A-Za-z0-9_-]{{0,40}}?{_NO_PLACE}token"),
    (
        "key",
        rf"(?<![A-Za-z0-9_-])(?:(?=[A-Za-z0-9_-]{{3,60}}key)[A-Za-z0-9_-]{{0,40}}?(?:{_PREFIXES})[_-]?key"
        r"|key(?:(?<=api key)|(?<=access key)|(?<=secret key)|(?<=auth key)))",
    ),
)
# `: "`, ` = '`, `\": \"` and ` is `.
_ASSIGNED: Final = (
    r"(?:\\?[\"']?\]?\s{0,3}(?::=|=>|[:=])\s{0,3}\\?[\"'`]?"
    r"|(?: (?:number|here|value))?,? (?:is|was)(?: now| set to)?:? [\"'`]?)"
)

CREDENTIAL_RULES: Final = (
    *(shipped(f"key-{name}", "SECRET", token(form), validate=_HERE + "generated") for name, form in _FORMS),
    shipped(
        "jwt",
        "SECRET",
        token(rf"eyJ{_W}{{14,8000}}\.eyJ{_W}{{10,8000}}(?:\.{_W}{{0,2000}})?"),
    ),
    shipped(
        "private-key",
        "PRIVATE_KEY",
        r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----)[\s\S]){0,20000}"
        r"(?:-----END [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    shipped(
        "url-credentials",
        "URL_CREDENTIALS",
        r"://(?P<value>(?:[^\s/@:\"'<>\x00$%{}]|%(?=[0-9A-Fa-f]{2})){0,64}:(?:[^\s/@\"'<>\x00{}$]|\$(?![{(A-Z_])){1,128}@[A-Za-z0-9.\[-]{1,253})",
    ),
    shipped(
        "hugging-face",
        "SECRET",
        rf"(?<![A-Za-z0-9_-])(?:hf_|api_org_){_A}{{34,37}}(?![A-Za-z0-9_-])",
        validate=_HERE + "generated",
    ),
    shipped(
        "azure-client-secret",
        "SECRET",
        r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])",
        validate=_HERE + "generated",
    ),
    shipped(
        "curl-user",
        "PASSWORD",
        r"curl(?=\s)[^\n]{0,200}?\s(?:-u|--user)(?:[ =][\"']?|[\"'])"
        r"(?P<value>[^\s:\"'$<>{}]{1,64}:[^\s\"'$<>{}]{3,128})",
    ),
    shipped(
        "sidekiq",
        "SECRET",
        r"(?i)__CONTRIBSYS__COM\\?[\"']?[:=|> ]{1,4}[\"']?(?P<value>[a-f0-9]{8}:[a-f0-9]{8})(?![A-Za-z0-9])",
    ),
    shipped(
        "teams-webhook",
        "SECRET",
        r"webhook\.office\.com/(?P<value>webhookb2/[A-Za-z0-9@-]{73}/IncomingWebhook/[A-Za-z0-9/-]{30,140})",
    ),
    shipped(
        "openshift",
        "SECRET",
        rf"(?<![A-Za-z0-9])sha256~{_W}{{43}}(?![A-Za-z0-9_-])",
        validate=_HERE + "generated",
    ),
    shipped(
        "gitlab-session",
        "SECRET",
        r"_gitlab_session=(?P<value>[0-9a-z]{32})(?![A-Za-z0-9])",
    ),
    shipped(
        "slack-webhook",
        "SECRET",
        r"hooks\.slack\.com/(?P<value>(?:services|workflows|triggers)/[A-Za-z0-9+/]{40,60})",
    ),
    shipped(
        "azure-account-key",
        "SECRET",
        r"(?i)AccountKey=(?P<value>[A-Za-z0-9+/]{86}==)",
    ),
    shipped(
        "http-authorization",
        "SECRET",
        r"(?i)authorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?"
        r"(?:bearer|basic|token|apikey) (?P<value>[A-Za-z0-9_.~+/=-]{8,2000})",
        validate=_HERE + "generated",
    ),
    *(
        shipped(
            f"named-{name}",
            "SECRET",
            rf"(?i){words}{_ASSIGNED}(?P<value>[^\s\"'`,;<>(){{}}\[\]\x00\\&]{{6,200}}(?<![.,:!?]))",
            validate=_HERE + "named_secret",
        )
        for name, words in _NAMED
    ),
    *PASSWORD_RULES,
)
