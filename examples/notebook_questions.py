"""Questions to a bank: reject, add a class, find wrong labels

400 questions to a bank in 10 classes (BANKING77, in the package), as vectors of a small encoder that
runs offline: `pip install '.[text]'`.
"""

import numpy as np

import mnemosphere as mn

bank = mn.load_data("banking-small")
clf = mn.DAMClassifier(encoder="wordllama", random_state=0).fit(
    bank.x_train, bank.y_train
)
print(f"{len(clf.classes_)} classes, {clf.n_memories_} memories")
print(f"accuracy on 100 held-out questions: {clf.score(bank.x_test, bank.y_test):.1%}")

# %%
# A decision rests on a few memories. A memory is known by the training texts most like it.
why = clf.explain(["I can't find my wallet, my card was in it"], n_memories=3)
print(why)
why.plot().savefig("why.png")
# Figure: Shares of memories and the questions typical of them; on the right, the classes.

# %%
# Held-out questions set the threshold: at most one in twenty questions like them is rejected.
clf.calibrate(bank.x_test, bank.y_test)
questions = [
    "Somebody stole my card",
    "Where is my pizza?",
    "Which points do I get for paying by card?",
    "Can I exchange points for a voucher?",
]


def show_answers():
    answers = clf.predict_or_reject(questions, rate=0.05)
    for question, answer in zip(questions, answers, strict=True):
        print(f"{question:45s} {answer}")


show_answers()

# %%
# Two examples are enough for a class. Nothing is trained, and the old classes keep their accuracy.
points = ["How do I collect points?", "Do you have a rewards program?"]
clf.add_class(points, "rewards")
show_answers()
print(f"accuracy on the old classes: {clf.score(bank.x_test, bank.y_test):.1%}")

# %%
# Ten labels are replaced by random ones. Models that did not see a question contradict its label.
rng, spoiled = np.random.default_rng(0), bank.y_train.copy()
wrong = rng.choice(len(spoiled), 10, replace=False)
names = np.unique(spoiled)
spoiled[wrong] = names[(np.searchsorted(names, spoiled[wrong]) + 3) % len(names)]
trained = mn.DAMClassifier(encoder="wordllama", random_state=0).fit(
    bank.x_train, spoiled
)
issues = trained.label_issues(bank.x_train, spoiled)
print(issues)
found = np.isin(issues.rows[:10], wrong).sum()
print(f"{found} of the ten most suspicious labels are among the ten replaced ones")

# %%
# A page for people who do not write Python: search the texts, see what was rejected and why.
clf.explore("questions.html", bank.x_test, bank.y_test, title="Questions to a bank")
