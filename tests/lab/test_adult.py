"""Adult's files in the formats in which they are found, made up here: no test needs the real ones."""

import gzip
import random

import polars as pl
import pytest

from tacit.errors import DataError
from tacit.lab.data import adult

HEADER = (
    "age,workclass,fnlwgt,education,educational-num,marital-status,occupation,relationship,race,gender,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)


def people(count: int, seed: int = 0) -> list[list[str]]:
    """Made-up people; those with long schooling and long hours earn more."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        years, hours = draw.randint(1, 16), draw.randint(10, 60)
        rich = years + hours / 6 + draw.gauss(0, 2) > 16
        rows.append([
            str(draw.randint(17, 90)), draw.choice(["Private", "State-gov", "?"]), "1",
            draw.choice(["HS-grad", "Bachelors"]), str(years), draw.choice(["Divorced", "Never-married"]),
            draw.choice(["Sales", "Tech-support"]),
            draw.choice(["Husband", "Wife"]), "White", draw.choice(["Male", "Female"]), "0", "0", str(hours),
            "United-States", ">50K" if rich else "<=50K",
        ])  # fmt: skip
    return rows


def write_csv(path, rows):
    path.write_text("\n".join([HEADER, *(",".join(row) for row in rows)]) + "\n")


def test_a_csv_with_a_header(tmp_path):
    rows = people(50)
    write_csv(tmp_path / "adult.csv", rows)
    table = adult.people(tmp_path)
    assert len(table) == 50
    assert table["age"].to_list() == [float(row[0]) for row in rows]
    assert table["workclass"].null_count() == sum(row[1] == "?" for row in rows)
    assert table[adult.LABEL].to_list() == [row[-1] == ">50K" for row in rows]
    assert "fnlwgt" not in table.columns
    assert table["id"].to_list() == list(range(50))


def test_the_same_csv_packed_and_in_quotes(tmp_path):
    write_csv(tmp_path / "plain.csv", people(20))
    quoted = '"' + (tmp_path / "plain.csv").read_text().strip().replace(",", '","').replace("\n", '"\n"') + '"\n'
    (tmp_path / "adult.csv.gz").write_bytes(gzip.compress(quoted.encode()))
    assert adult.people(tmp_path).equals(adult.people(tmp_path / "plain.csv"))


def test_the_official_files_have_no_header_and_a_remark(tmp_path):
    rows = people(30)
    write_csv(tmp_path / "all.csv", rows)
    (tmp_path / "adult.data").write_text("\n".join(", ".join(row) for row in rows[:20]) + "\n\n")
    (tmp_path / "adult.test").write_text(
        "|1x3 Cross validator\n" + "\n".join(", ".join(row) + "." for row in rows[20:]) + "\n"
    )
    assert adult.people(tmp_path).equals(adult.people(tmp_path / "all.csv"))
    assert len(adult.people(tmp_path / "adult.test")) == 10


def test_the_parties_get_their_columns(tmp_path):
    write_csv(tmp_path / "adult.csv", people(400))
    data = adult.load(tmp_path, rows=300)
    assert len(data.train) + len(data.test) == 300
    assert data.train.features[0].shape[1] == len(adult.EMPLOYER_INPUTS.categorical)
    assert data.train.own[1].shape[1] == 2
    assert set(data.train.labels.tolist()) == {0.0, 1.0}
    assert not set(adult.EMPLOYER_INPUTS.names) & set(adult.TAX_OFFICE_INPUTS.names)


def test_nothing_there_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"holds none of adult.csv.*archive.ics.uci.edu"):
        adult.people(tmp_path)
    with pytest.raises(DataError, match=r"adult.csv is missing"):
        adult.people(tmp_path / "adult.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("age,income\n1,<=50K\n", "has 2 columns and lacks .*workclass"),
        ("1,2,3\n", "has 3 columns"),
        ("\n".join([HEADER, ",".join([*people(1)[0][:-1], "lots"])]), "line 2: income is 'lots', neither"),
        ("\n".join([HEADER, ",".join(["old", *people(1)[0][1:]])]), "line 2: age is 'old', not a finite number"),
        (
            "\n".join([HEADER, ",".join([*people(1)[0], "more", "still more"])]),
            "line 2: the line has 17 fields, not 15",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, content, words):
    path = tmp_path / "adult.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        adult.people(path)
    assert "adult.csv" in str(caught.value)


def test_the_table_is_polars(tmp_path):
    write_csv(tmp_path / "adult.csv", people(5))
    assert adult.people(tmp_path).schema["hours_per_week"] == pl.Float32
