"""The one table of `tacit choose --label-limit`: what is tried, in which order, and what stands in a row."""

from tacit.lab.exchanges import Point, Search, Setting, Trial, table


def test_no_label_is_tried_first_with_the_numbers_that_it_needs():
    search = Search(limits=(0.6, 0.75), odds=3.0, bits=(1, 3), numbers=(1,))
    words = [setting.words for setting in search.settings(columns=23)]
    assert words == [
        "no partner", "no label, 8 numbers of 5 bits", "flips, limit 0.6, 1 bit", "flips, limit 0.6, 3 bits",
        "flips, limit 0.75, 1 bit", "flips, limit 0.75, 3 bits", "all columns joined, no protection",
    ]  # fmt: skip
    few = [setting.numbers for setting in search.settings(columns=3) if setting.labels == "none"]
    assert few == [3], "as many as there are columns"


def test_a_row_has_the_auc_the_bound_the_worst_question_and_the_conjunction():
    trials = (
        Trial(0.75, 0.6, 3.0, 0.81, 0.2, "hour, highest", 0.4), Trial(0.77, 0.6, 3.0, 0.8, 0.2, "day, lowest", 0.5)
    )  # fmt: skip
    rows = table([Point(Setting("alone"), (Trial(0.6, 0.5, 1.0),)), Point(Setting("flips", 0.6, 3, 1), trials)])
    assert rows[0] == ["no partner", "0.600", "0.500, odds 1", "", ""]
    setting, auc, bound, asked, conjunction = rows[1]
    assert (setting, bound) == ("flips, limit 0.6, 3 bits", "0.600, odds 3")
    assert auc.startswith("0.760 ± 0.127")
    assert (asked, conjunction) == ("0.810 hour, highest", "0.500")
