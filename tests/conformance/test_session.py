"""What holds of a session in process holds of one on a service: the same tests, over both."""

# ruff: noqa: F401  # what is imported is collected here once more

import pytest

from promising.query import Session
from tests.conformance.sessions import Opened
from tests.query import test_session
from tests.query.test_session import (
    test_an_answer_can_be_read_once_and_kept,
    test_drop_asks_for_cascade_where_something_depends,
    test_execute_gives_each_statement_its_kind_of_answer,
    test_execute_many_stops_at_the_first_failure,
    test_explain_analyze_says_what_came_of_it,
    test_explain_changes_nothing,
    test_explain_names_the_plan,
    test_explain_says_truly_why_a_summary_is_not_used,
    test_explain_shows_the_first_promising_regions,
    test_if_exists_and_if_not_exists,
    test_names_are_case_insensitive_and_keep_their_spelling,
    test_names_of_columns,
    test_names_that_need_quotes,
    test_show_streams_counts,
    test_show_summaries_and_describe,
    test_the_same_seed_gives_the_same_order,
    test_to_pandas,
    test_what_is_created_is_shown_and_what_is_dropped_is_gone,
    test_what_was_removed_stays_gone,
)


@pytest.fixture
def session(opened: Opened) -> Session:
    return test_session.filled(opened)
