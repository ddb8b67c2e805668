"""The retail log, as the package has it."""

import numpy as np
import pyarrow as pa
import pytest

from promising.demo import journey


@pytest.fixture(scope="module")
def log() -> pa.Table:
    return journey.transactions()


def test_the_log_is_whole_and_in_order_of_time(log):
    assert log.num_rows == 1_469_307
    times = log[journey.TIME].to_numpy()
    assert (np.diff(times) >= np.timedelta64(0)).all()
    assert log.schema.field(journey.TIME).type == pa.timestamp("us")


def test_each_column_has_what_its_name_says(log):
    assert log.column_names == list(journey.SCHEMA)
    first = log.slice(0, 1).to_pylist()[0]
    assert str(first.pop("TimeStamp")) == "2017-01-01 11:53:26"
    assert first == {"StoreID": 330, "TransactionID": 31198570044, "ItemID": 1095275, "Price": 0.5}


def test_a_piece_of_the_log_is_its_beginning(log):
    assert journey.transactions(7).equals(log.slice(0, 7))


def test_items_have_names_as_far_as_known():
    assert journey.product_names([1082185, -1]) == {1082185: "bananas"}
