"""Ask an expensive model only when it helps

A small model sees a quarter of the pixels and answers most rows. The rows between known classes go to a
second model, which sees every pixel and costs more. Rows unlike all known ones go to neither.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import mnemosphere as mn

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)


def thumbnails(images):
    return images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)


small = mn.DAMClassifier(random_state=0).fit(thumbnails(X), y)
large = SVC(gamma=0.001).fit(X, y)
print(f"small model alone: {small.score(thumbnails(X_test), y_test):.1%} right")
print(f"large model alone: {large.score(X_test, y_test):.1%} right")


# %%
# A rejected row is between classes ("ask"), or unlike all known rows (None). A second model can only
# help with the first kind.
def answers(images, rate):
    said = small.predict_or_reject(thumbnails(images), rate=rate, ask=True)
    asked = said == "ask"
    if asked.any():
        said[asked] = large.predict(images[asked])
    return said, asked


for rate in (0.02, 0.05, 0.1, 0.2):
    said, asked = answers(X_test, rate)
    given = ~np.equal(said, None)
    print(
        f"rate {rate:.2f}: {np.mean(said[given] == y_test[given]):.1%} of the answers are right, "
        f"{asked.mean():.1%} of the rows asked, {np.mean(~given):.1%} without an answer"
    )

# %%
# A call of the large model costs 1, one of the small model 0.01. Both together cost:
said, asked = answers(X_test, 0.1)
print(f"{0.01 + asked.mean():.2f} per row, in place of 1")

# %%
# Pixels in random places are not digits. Nobody needs to look at them:
noise = np.random.default_rng(0).permuted(X_test, axis=1)
said, asked = answers(noise, 0.1)
print(f"{np.equal(said, None).mean():.1%} without an answer, {asked.mean():.1%} asked")
