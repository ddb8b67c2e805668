"""What is wrong is told in the same words, at the same place, by a session in process and by one on a service."""

# ruff: noqa: F401  # what is imported is collected here once more

import pytest

from tests.conformance.sessions import Opened
from tests.query.test_bad_input import (
    World,
    test_a_bad_budget_does_not_use_up_a_token,
    test_a_budget_out_of_range_is_refused,
    test_a_definition_that_cannot_be_is_refused_with_its_place,
    test_a_forged_token_is_refused,
    test_a_join_warns_for_each_stream_that_the_window_outreaches,
    test_a_summary_cannot_be_made_on_a_column_with_nulls,
    test_a_token_expires_by_the_clock,
    test_a_token_is_good_once,
    test_a_token_of_another_session_is_refused,
    test_a_window_longer_than_the_retention_warns_and_says_what_is_covered,
    test_an_answer_under_way_outlives_what_it_reads,
    test_an_answer_whose_tuples_have_aged_out_cannot_go_on,
    test_an_error_in_a_late_slice_ends_the_answer_for_good,
    test_query_takes_nothing_but_a_select,
    test_the_error_is_typed_and_points_at_its_place,
    test_the_oldest_tokens_are_pushed_out,
    test_tuples_that_arrive_later_are_not_in_an_answer_under_way,
    test_unknown_names_outside_of_statements,
    test_zero_budget_bounds_a_count,
    test_zero_budget_gives_no_rows_and_estimates,
)

pytestmark = pytest.mark.deep("every error again, in process and over the network")


@pytest.fixture
def world(opened: Opened) -> World:
    return World(opened)


@pytest.fixture
def shared(world: World) -> World:
    return world
