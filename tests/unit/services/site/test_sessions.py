"""Session cookies: signed, limited in time, and worth nothing once their key is gone."""

import pytest

from services.site.roles import parse_role_key
from services.site.sessions import SECRET_BYTES, SESSION_SECONDS, SessionSigner, load_secret

KEYS = (parse_role_key("run key-of-run Ada", 1), parse_role_key("view key-of-view", 2))
SIGNER = SessionSigner(b"s" * SECRET_BYTES)


def test_a_session_names_its_key_until_it_is_too_old():
    cookie = SIGNER.create_session(KEYS[1].fingerprint, now=1000)
    assert SIGNER.find_session_key(cookie, KEYS, now=1000 + SESSION_SECONDS) == KEYS[1]
    assert SIGNER.find_session_key(cookie, KEYS, now=1001 + SESSION_SECONDS) is None


def test_a_session_ends_with_its_key():
    cookie = SIGNER.create_session(KEYS[1].fingerprint, now=1000)
    assert SIGNER.find_session_key(cookie, KEYS[:1], now=1000) is None


@pytest.mark.parametrize("change", [lambda text: text.replace(".", "0.", 1), lambda text: text[:-1] + "g", str.upper])
def test_a_changed_cookie_is_no_session(change):
    cookie = SIGNER.create_session(KEYS[0].fingerprint, now=1000)
    assert SIGNER.find_session_key(change(cookie), KEYS, now=1000) is None


def test_two_sessions_of_a_key_differ_and_have_tokens_of_their_own():
    first, second = (SIGNER.create_session(KEYS[0].fingerprint) for _ in range(2))
    assert first != second and SIGNER.csrf_token(first) != SIGNER.csrf_token(second)


def test_the_secret_outlives_the_site_and_is_its_owners_alone(tmp_path):
    file = tmp_path / "state" / "secret"
    secret = load_secret(file)
    assert load_secret(file) == secret and len(secret) == SECRET_BYTES
    assert file.stat().st_mode & 0o077 == 0


def test_a_secret_that_was_cut_off_is_made_anew(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(b"short")
    assert len(load_secret(file)) == SECRET_BYTES
