"""The benchmark of the secret scanner, at its small size; and that its controls go red."""

from __future__ import annotations

import pytest
from bench.datasets import DATA_ENV

from bench import authority_secrets
from meritory.text.secrets import SecretMatch


def test_secrets_are_found_and_harmless_text_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv(DATA_ENV, str(tmp_path_factory.mktemp("no_data")))
    report = authority_secrets.measure("small")
    assert [check.name for check in report.checks if not check.is_met] == []
    assert any("SKIPPED" in check.note for check in report.checks)


def test_a_scanner_that_finds_nothing_is_noticed() -> None:
    share, missed = authority_secrets.found_share(lambda _: (), 1, 1)
    assert share == 0
    assert len(missed) == len(authority_secrets.kinds()) >= 200


def test_a_secret_that_is_masked_in_part_counts_as_missed() -> None:
    assert authority_secrets.is_masked((SecretMatch("key", 2, 9),), [(3, 9)])
    assert not authority_secrets.is_masked((SecretMatch("key", 2, 8),), [(3, 9)])


def test_generated_numbers_have_valid_check_digits() -> None:
    generator = authority_secrets.Generator(seed=1)
    assert generator.iban("DE", 18)[:2] == "DE"
    # The check digit of a well-known test number.
    generator.run = lambda alphabet, count: "24242424242424"[:count]  # type: ignore[method-assign]
    assert generator.card("4", 16) == "4242424242424242"
