"""Keys and passwords are found; hashes, ids and placeholders are not.

The keys below are made up, and put together at run time so that no scanner takes them for real.
"""

from __future__ import annotations

import base64
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.language import read_language
from meritory.text.secrets import find_secrets, redact

ALPHANUMERIC = string.ascii_letters + string.digits


def made_up(size: int, alphabet: str = ALPHANUMERIC, seed: int = 7) -> str:
    chooser = random.Random(seed)
    body = "".join(chooser.choice(alphabet) for _ in range(size - 2))
    return body + "7q"


def made_up_jwt() -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": "4711", "name": "Rex"})
    ]
    return ".".join((*parts, made_up(43)))


UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
SHAPES = [
    ("aws_access_key", "AKIA" + made_up(16, UPPER)[:-2] + "Z7"),
    ("google_api_key", "AIza" + made_up(35)),
    ("google_oauth", "ya29." + made_up(60)),
    ("google_oauth", "GOCSPX-" + made_up(28)),
    ("azure_client_secret", "aB3" + "8Q~" + made_up(34)),
    ("github_token", "ghp_" + made_up(36)),
    ("github_token", "github_pat_" + made_up(22) + "_" + made_up(59)),
    ("gitlab_token", "glpat-" + made_up(20)),
    ("slack_token", "xoxb-" + "123456789012-" + made_up(24)),
    ("slack_webhook", "hooks.slack.com/services/T0" + "12AB/B0" + "34CD/" + made_up(24)),
    ("discord_webhook", "discord.com/api/webhooks/" + "918273645546372819" + "/" + made_up(68)),
    ("stripe_key", "sk_" + "live_" + made_up(24)),
    ("anthropic_key", "sk-" + "ant-api03-" + made_up(80)),
    ("openai_key", "sk-" + "proj-" + made_up(48)),
    ("openai_key", "sk-" + made_up(48)),
    ("openrouter_key", "sk-or-" + "v1-" + made_up(62, HEX)[:-2] + "a7"),
    ("npm_token", "npm_" + made_up(36)),
    ("pypi_token", "pypi-" + "AgEIcHlwaS5vcmc" + made_up(80)),
    ("huggingface_token", "hf_" + made_up(34)),
    ("sendgrid_key", "SG." + made_up(22) + "." + made_up(43)),
    ("telegram_token", "123" + "4567890:AA" + made_up(33)),
    ("groq_key", "gsk_" + made_up(52)),
    ("jwt", made_up_jwt()),
]


@pytest.mark.parametrize(("kind", "key"), SHAPES, ids=[kind for kind, _ in SHAPES])
@pytest.mark.parametrize("frame", ["{}", "use {} from now on", 'key="{}",', "({})", "see\n{}\n"])
def test_vendor_keys_are_found_whole(kind: str, key: str, frame: str) -> None:
    text = frame.format(key)
    found = find_secrets(text)
    assert [match.kind for match in found] == [kind]
    assert text[found[0].start : found[0].end] == key
    assert redact(text) == frame.format(f"[redacted:{kind}]")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("password = Tr0ub4dor&3", "password"),
        ("my password is hunter2", "password"),
        ("wifi password: BlueHorse42!", "password"),
        ("DB_PASSWORD='s3cr3tP4ss'", "password"),
        ("passphrase is correct-horse-42-staple", "password"),
        ("api_key: 'a8f5f167f44f4964e6c998dee827110c'", "api_key"),
        ("client_secret = q9Zk2LmN0pRs4tUv6WxY", "secret"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYq7Zk2LmN0p", "api_key"),
        ("token: q9Zk2LmN0pRs4tUv6WxY", "token"),
        ('{"access_token": "q9Zk2LmN0pRs4tUv6WxY"}', "token"),
        ("postgres://bob:s3cr3tP4ss@db:5432/x", "url_password"),
        ("https://x:q9Zk2LmN0pRs@example.org/repo.git", "url_password"),
        ("Authorization: Bearer abc123DEF456ghi789jkl", "auth_header"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==", "auth_header"),
        ("AccountKey=" + made_up(86) + "==", "azure_key"),
        ("the auth code is 4/0AXEQxIB2xV3mhf8FJkxi3Bgtqn6FI0iz75J6P", "high_entropy_token"),
    ],
)
def test_values_betrayed_by_the_words_around_them(text: str, kind: str) -> None:
    assert [match.kind for match in find_secrets(text)] == [kind]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        # Without a linking word, and turned round.
        ("sign in with password Xk9mPq2vL now", "Xk9mPq2vL"),
        ("use Xk9mPq2vL as the password", "Xk9mPq2vL"),
        ("btw Xk9mPq2vL is the admin password", "Xk9mPq2vL"),
        ("password for ETL_USER: Xk9mPq2vL", "Xk9mPq2vL"),
        ("password for prod is Xk9!pQ2z", "Xk9!pQ2z"),
        ("the password was changed to Xk9!pQ2z", "Xk9!pQ2z"),
        ("password is swordfish", "swordfish"),
        ("user: bob pass: Xk9mPq2vL", "Xk9mPq2vL"),
        ("login: admin / Xk9mPq2vL", "Xk9mPq2vL"),
        # Command lines.
        ("curl -u bob:hunter22 https://acme.test", "hunter22"),
        ("mysql -uroot -pS3cr3tPw shop", "S3cr3tPw"),
        ("sshpass -p hunter22 ssh root@host", "hunter22"),
        ("PGPASSWORD=hunter22 psql", "hunter22"),
        ("deploy --password hunter22", "hunter22"),
        ("docker login -u ci -p hunter22 ghcr.io", "hunter22"),
        ("redis-cli -a hunter22 ping", "hunter22"),
        ("echo hunter22 | sudo -S reboot", "hunter22"),
        ("CREATE USER bob IDENTIFIED BY 'hunter22'", "hunter22"),
        # Other languages, and the full-width colon.
        ("Passwort: geheim123", "geheim123"),
        ("das Passwort lautet geheim123", "geheim123"),
        ("le mot de passe est geheim123", "geheim123"),
        ("la contraseña es geheim123", "geheim123"),
        ("la password è geheim123", "geheim123"),
        ("a senha é geheim123", "geheim123"),
        ("het wachtwoord is geheim123", "geheim123"),
        ("hasło to geheim123", "geheim123"),
        ("пароль: geheim123", "geheim123"),
        ("密码：geheim123", "geheim123"),
        ("パスワードはgeheim123です", "geheim123"),
        # Addresses, wallets, one-time passwords, accounts.
        ("postgres://u:p4@ss@db/x", "p4@ss"),
        ("private key 0x" + made_up(64, HEX)[:-2] + "a7", made_up(64, HEX)[:-2] + "a7"),
        ("seed phrase: " + "ocean olive panther " * 4, "ocean olive panther " * 3 + "ocean olive"),
        ("TOTP secret: JBSWY3DPEHPK3PXPJBSW", "JBSWY3DPEHPK3PXPJBSW"),
        ("the TOTP secret MWAOPVCXJOXKBHKF goes into the vault", "MWAOPVCXJOXKBHKF"),
        ("root:$6$aB3dE6gH$" + made_up(86), made_up(86)),
        ("card 5395 7876 3621 4862 exp 12/27", "5395 7876 3621 4862"),
        ("pay to DE89370400440532013000 please", "DE89370400440532013000"),
        ("her SSN is 219-09-9999", "219-09-9999"),
    ],
)
def test_secrets_that_version_01_stored(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redact(text)


def test_invisible_characters_and_line_breaks_do_not_hide_a_token() -> None:
    key = made_up(36)
    for gap in ("\u200b", "\u00ad", "\ufeff", "\n", "\\\n  "):
        text = f"take ghp_{key[:15]}{gap}{key[15:]} for it"
        assert redact(text) == "take [redacted:github_token] for it", repr(gap)
    # The line after a whole token is not part of it.
    assert redact(f"ghp_{key}\nThen run it") == "[redacted:github_token]\nThen run it"


def test_a_private_key_is_redacted_as_one_block() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----"
    assert redact(f"key:\n{block}\nend") == "key:\n[redacted:private_key]\nend"
    cut_off = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA"
    assert redact(cut_off) == "[redacted:private_key]"


@pytest.mark.parametrize(
    "text",
    [
        "the token budget is 1500",
        "token limit: 8192",
        "password_reset_url = https://example.org/r1",
        "password must be at least 8 characters",
        "password: 12 characters minimum",
        "the password is required",
        "passwords are hashed with argon2id; password = argon2id",
        "commit 4f2c1d9e8b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e broke the token parser",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "session token 123e4567-e89b-12d3-a456-426614174000",
        "api key: <your-key>",
        "api_key = xxxxxxxxxxxxxxxxxxxxxxxx",
        "token: $TOKEN, ${TOKEN}, {{ token }}, %TOKEN%",
        "API_KEY=os.environ['API_KEY_2']",
        "password = get_password(user1)",
        "password: passw0rd, password: password123",
        "AKIAIOSFODNN7EXAMPLE",
        "postgres://postgres:postgres@localhost/app",
        "https://user:<password>@example.org",
        "sk-learn-pipeline-with-a-long-kebab-name-2",
        "the key src/meritory/text/secrets_and_keys_2.py is the secret file",
        "--pass: #6dc494",
        "Use 1Password: 1Password can generate them",
        "Bearer tokens are documented in RFC6750",
        "secret santa is on 2024-12-20",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "http://localhost:8080/@scope",
        "[Access Link: ProjectAltay_KanasMap_2026.pdf]",
        "the password reset page is slow",
        "ssh -p 2222 deploy@host1",
        "test card 4242 4242 4242 4242",
    ],
)
def test_what_only_looks_like_a_secret_is_left_alone(text: str) -> None:
    assert find_secrets(text) == ()
    assert redact(text) == text


@given(st.text())
def test_matches_are_ordered_apart_and_inside(text: str) -> None:
    end = 0
    for match in find_secrets(text):
        assert end <= match.start < match.end <= len(text)
        end = match.end


HOSTILE = [
    "a", "1", "-", "/", "=", "@", ".", "a-", "a_", "a.", "a:", "eyJ", "eyJaaaaaaaaa.", "password ",
    "password= ", "a_b_c_d_password_", "token", "a://b:", "bearer ", "sk-a-", "AKIA", "abc8Q~",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "xox", "key key ", "SG.a", "password for a b ",
    "curl -u ", "mysql -u ", "echo a1|", "\nab12", "ab12\n", "seed phrase is abc ", "$6$1$",
    "net use ", "http://a1:", "as password ", "4 ", "DE12 ", "login a/", "pw:\n", "\u200b1",
    "passphrase: abc ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_of_full_length_comes_to_an_end(piece: str) -> None:
    text = (piece * 8192)[:8192]
    assert len(redact(text)) <= len(text)


def test_every_shape_has_the_marks_by_which_it_is_looked_for() -> None:
    shapes = read_language("secrets")["shapes"]
    # A token is looked up by the first two characters of a mark.
    assert all(len(mark) >= 2 for marks, _ in shapes.values() for mark in marks.split("|"))
    for kind, example in SHAPES:
        if kind in shapes:
            assert example.startswith(tuple(shapes[kind][0].split("|"))), kind


@pytest.mark.parametrize("name", ["API_KEY", "api_key", "ſecret_toKen", "client_ſecret"])
def test_names_are_found_whatever_their_case(name: str) -> None:
    assert find_secrets(f"{name} = {made_up(24)}")
