"""An unknown key of a configuration is named, with the nearest one that there is."""

import pytest

from tarn import models


@pytest.mark.parametrize("key, near", (("dmodel", "d_model"), ("atention", "attention")))
def test_the_nearest_key_is_suggested(key, near):
    with pytest.raises(ValueError, match=f"unknown key '{key}'.*did you mean '{near}'"):
        models.LanguageModel(**{key: 64})


def test_a_key_that_is_like_no_other_is_only_named():
    with pytest.raises(ValueError, match="unknown key 'qqqq'$"):
        models.finish_config(qqqq=1)
