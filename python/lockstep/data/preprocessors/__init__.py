"""Preprocessors: make features of raw columns, the same way for training and for prediction. For example::

    from lockstep.data.preprocessors import Chain, SimpleImputer, StandardScaler

    preprocessor = Chain(SimpleImputer(columns=["age"]), StandardScaler(columns=["age", "height"]))
    train = preprocessor.fit_transform(train)
    validation = preprocessor.transform(validation)
    batch = preprocessor.transform_batch(batch)

The names, arguments and results are those of Ray AIR.
"""

from lockstep.data.preprocessor import Preprocessor, PreprocessorNotFittedException
from lockstep.data.preprocessors.batch_mapper import BatchMapper
from lockstep.data.preprocessors.chain import Chain
from lockstep.data.preprocessors.concatenator import Concatenator
from lockstep.data.preprocessors.discretizer import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from lockstep.data.preprocessors.encoder import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from lockstep.data.preprocessors.hasher import FeatureHasher
from lockstep.data.preprocessors.imputer import SimpleImputer
from lockstep.data.preprocessors.normalizer import Normalizer
from lockstep.data.preprocessors.scaler import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from lockstep.data.preprocessors.tokenizer import Tokenizer
from lockstep.data.preprocessors.torch import TorchVisionPreprocessor
from lockstep.data.preprocessors.transformer import PowerTransformer
from lockstep.data.preprocessors.vectorizer import CountVectorizer, HashingVectorizer

__all__ = [
    "BatchMapper",
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "Preprocessor",
    "PreprocessorNotFittedException",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]
