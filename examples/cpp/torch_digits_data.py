"""Writes scikit-learn's handwritten digits for example_torch_digits: 64 pixels and the digit in a line.

python examples/cpp/torch_digits_data.py digits.csv
"""

import sys

from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
with open(sys.argv[1], "w") as file:
    for image, label in zip(images.astype(int), labels, strict=True):
        file.write(",".join(map(str, [*image, label])) + "\n")
