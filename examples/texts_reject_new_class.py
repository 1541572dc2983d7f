"""Texts: reject what is not known, add a class

Questions to a bank (400 rows of BANKING77, in the package), as vectors of a small encoder that runs
offline: `pip install '.[text]'`.
"""

import mnemosphere as mn

bank = mn.load_data("banking-small")
clf = mn.DAMClassifier(encoder="wordllama", random_state=0).fit(
    bank.x_train, bank.y_train
)
print(f"{len(clf.classes_)} classes, {clf.n_memories_} memories")
print(f"accuracy on 100 held-out questions: {clf.score(bank.x_test, bank.y_test):.1%}")

# %%
# Held-out questions settle what is rejected: at most one in twenty questions like them.
clf.calibrate(bank.x_test, bank.y_test)
questions = [
    "Somebody stole my card",
    "What is the capital of France?",
    "Which points do I get for paying by card?",
    "Can I exchange points for a voucher?",
]
for text, answer in zip(
    questions, clf.predict_or_reject(questions, rate=0.05), strict=True
):
    print(f"{text:45s} {answer}")

# %%
# Two examples are enough for a new class. Nothing is trained again. The class changes the votes:
# `calibrate` makes rates exact again.
clf.add_class(["How do I collect points?", "Do you have a rewards program?"], "rewards")
clf.calibrate(bank.x_test, bank.y_test)
for text, answer in zip(
    questions, clf.predict_or_reject(questions, rate=0.05), strict=True
):
    print(f"{text:45s} {answer}")
print(f"accuracy on the old classes: {clf.score(bank.x_test, bank.y_test):.1%}")

# %%
# The training texts behind a decision:
why = clf.explain(["I can't find my wallet, my card was in it"], n_nearest=3)
why.plot().savefig("why.png")
