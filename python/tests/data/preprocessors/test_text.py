"""Tokens, hashes and counts of texts."""

from __future__ import annotations

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import sklearn.feature_extraction.text
from lockstep import ConfigError
from lockstep.data.preprocessors import CountVectorizer, FeatureHasher, HashingVectorizer, Tokenizer

CORPUS = ["Jimmy likes volleyball", "Bob likes volleyball too", "Bob also likes fruit jerky"]


def test_tokenizer() -> None:
    texts = ["Hello, world", "a  b", "", "ä"]
    expected = [text.split(" ") for text in texts]
    assert Tokenizer(["t"]).transform_batch(pandas.DataFrame({"t": texts}))["t"].tolist() == expected
    table = pyarrow.table({"t": [*texts, None]})
    assert Tokenizer(["t"]).transform_batch(table).column("t").to_pylist() == [*expected, None]
    lengths = Tokenizer(["t"], lambda text: [len(text)]).transform_batch(table)
    assert lengths.column("t").to_pylist() == [[12], [4], [0], [1], None]
    empty = Tokenizer(["t"], str.split).transform_batch(pyarrow.table({"t": [""]}))
    assert empty.schema.field("t").type == pyarrow.list_(pyarrow.string())
    with pytest.raises(ConfigError, match="the column 't' is int64; it must be strings"):
        Tokenizer(["t"]).transform_batch(pyarrow.table({"t": [1]}))


def test_hashes_are_the_same_everywhere() -> None:
    """Models depend on them, so these numbers never change."""
    counts = pyarrow.table({"I": [1, 1], "like": [1, 0], "dislike": [0, 1], "Python": [1, 1], "y": [5, 6]})
    hashed = FeatureHasher(["I", "like", "dislike", "Python"], num_features=8).transform_batch(counts)
    assert hashed.column_names == ["y", *(f"hash_{number}" for number in range(8))]
    assert hashed.drop_columns("y").to_pandas().to_numpy().tolist() == [
        [0, 0, 0, 2, 0, 1, 0, 0],
        [0, 0, 0, 1, 0, 1, 1, 0],
    ]
    vectors = HashingVectorizer(["corpus"], num_features=8).transform_batch(pandas.DataFrame({"corpus": CORPUS}))
    assert list(vectors.columns) == [f"hash_corpus_{number}" for number in range(8)]
    assert vectors.to_numpy().tolist() == [[1, 0, 1, 0, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 2, 1, 0]]
    with pytest.raises(ConfigError, match="num_features is 0; it must be an int of at least 1"):
        HashingVectorizer(["corpus"], 0)


def test_feature_hasher_of_other_numbers() -> None:
    table = pyarrow.table({"x": [0.5, None]})
    assert FeatureHasher(["x"], 1).transform_batch(table).to_pydict() == {"hash_0": [0.5, 0.0]}


def test_count_vectorizer() -> None:
    frame = pandas.DataFrame({"corpus": CORPUS})
    vectorizer = CountVectorizer(["corpus"]).fit(lockstep.data.from_pandas(frame))
    counts = vectorizer.stats_["token_counts(corpus)"]
    assert list(counts.items())[:3] == [("likes", 3), ("volleyball", 2), ("Bob", 2)]
    result = vectorizer.transform_batch(frame)
    assert list(result.columns) == [f"corpus_{token}" for token in counts]
    oracle = sklearn.feature_extraction.text.CountVectorizer(
        tokenizer=str.split, lowercase=False, token_pattern=None, vocabulary=list(counts)
    )
    numpy.testing.assert_array_equal(result.to_numpy(), oracle.fit_transform(CORPUS).toarray())
    few = CountVectorizer(["corpus"], max_features=3).fit(lockstep.data.from_pandas(frame))
    assert list(few.transform_batch(frame).columns) == ["corpus_likes", "corpus_volleyball", "corpus_Bob"]
    unknown = few.transform_batch(pyarrow.table({"corpus": ["Bob Bob sleeps", None]}))
    assert unknown.to_pydict() == {"corpus_likes": [0, 0], "corpus_volleyball": [0, 0], "corpus_Bob": [2, 0]}


def test_own_tokens() -> None:
    frame = pandas.DataFrame({"t": ["a-b-a", "b"]})
    vectorizer = CountVectorizer(["t"], tokenization_fn=lambda text: text.split("-"))
    result = vectorizer.fit(lockstep.data.from_pandas(frame)).transform_batch(frame)
    assert result.to_dict("list") == {"t_a": [2, 0], "t_b": [1, 1]}
