"""A language that treekit does not know is a folder: exported, run and verified, no Python."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.reference.models import mixed_schema, random_model
from tests.runtimes import need
from treekit import registry
from treekit.cli import main
from treekit.errors import (
    ExportError,
    PluginError,
    SettingError,
    TreekitWarning,
    VerificationError,
)
from treekit.export.languages import read_profile
from treekit.export.render import shipped_folders
from treekit.model.builder import build_tree, leaf
from treekit.model.model import make_model

PROFILE = """\
suffix = ".pl"
summary = "Perl, no modules"
files = { ".pl" = "module.jinja" }

[literals]
strings = "bytes"

[limits]
if_else_nodes = 10

[verify]
needs = ["perl"]
version = ["perl", "-e", "print $^V"]
files = { "driver.pl" = "driver.jinja" }
artifact = "m{number}.pl"
run = ["perl", "driver.pl"]
"""

MODULE = """\
use strict;
use warnings;

# A row is a list of numbers and codes; undef is missing.
my @value = ({{ nodes.value }});
my @question = ({{ nodes.question }});
my @yes = ({{ nodes.yes }});
my @no = ({{ nodes.no }});
my @root = ({{ root }});
my @sets = ({{ sets }});
my @start = ({{ leaves.start }});
my @column = ({{ leaves.column }});
my @units = ({{ leaves.units }});
my @level_counts = ({{ level_counts }});

my @names = (
{% for column in columns %}
    {{ column.name }},
{% endfor %}
);
my @labels = (
{% for label in labels[0] %}
    {{ label }},
{% endfor %}
);
my @levels = (
{% for column in columns %}
    [{% for level in column.levels %}{{ level }}, {% endfor %}],
{% endfor %}
);

sub is_missing {
    my ($x, $count) = @_;
    return $x != $x if $count < 0;
    return !($x >= 0 && $x < $count && int($x) == $x);
}

sub has_code {
    my ($x, $set) = @_;
    return 0 unless $x >= 0 && $x < 2147483648 && int($x) == $x;
    my $word = ($x >> 5) - $sets[$set];
    return $word >= 0 && $word < $sets[$set + 1] && ($sets[$set + 2 + $word] >> ($x & 31)) & 1;
}

sub says {
    my ($x, $node) = @_;
    my ($asked, $kind) = ($x->[$question[$node] >> 2], $question[$node] & 3);
    return $asked <= $value[$node] if $kind == 0;
    return !($asked > $value[$node]) if $kind == 1;
    return has_code($asked, $value[$node]) if $kind == 2;
    return is_missing($asked, $level_counts[$question[$node] >> 2]);
}

# The number of the class, and the probability of each.
sub predict {
    my ($x) = @_;
    my @votes = (0) x {{ outputs }};
    for my $root (@root) {
        my $at = $root;
        $at = says($x, $at) ? $yes[$at] : $no[$at] while $at >= 0;
        my $leaf = -1 - $at;
        $votes[$column[$_]] += $units[$_] for $start[$leaf] .. $start[$leaf + 1] - 1;
    }
    my $label = 0;
    for my $k (1 .. $#votes) { $label = $k if $votes[$k] > $votes[$label] }
    return ($label, map { $_ / {{ unit_total }} } @votes);
}

{ predict => \\&predict, names => \\@names, labels => \\@labels, levels => \\@levels };
"""

DRIVER = """\
use strict;
use warnings;
binmode STDIN;
binmode STDOUT;
local $/;
my $in = <STDIN>;
my $at = 0;
my @targets = (
{% for model in models %}
    [{% for name in model.target_names %}{{ name }}, {% endfor %}],
{% endfor %}
);
my @widths = ({% for model in models %}{{ model.features }}, {% endfor %});

sub int32 { $at += 4; return unpack("l<", substr($in, $at - 4, 4)) }

while ($at < length $in) {
    my $number = int32();
    my $model = do "./m$number.pl" or die $@;
    for my $list ($model->{names}, $targets[$number], $model->{labels}, @{$model->{levels}}) {
        print pack("l<", scalar @$list), map { pack("l</a*", $_) } @$list;
    }
    for (1 .. int32()) {
        my ($feature, $length) = (int32(), int32());
        my ($text, $levels) = (substr($in, $at, $length), $model->{levels}[$feature]);
        $at += $length;
        my ($code) = grep { $levels->[$_] eq $text } 0 .. $#$levels;
        print pack("l<", defined $code ? $code : -1);
    }
    for (1 .. int32()) {
        my @x = unpack("d<$widths[$number]", substr($in, $at, 8 * $widths[$number]));
        $at += 8 * @x;
        my ($label, @shares) = $model->{predict}->(\\@x);
        print pack("l<d<*", $label, @shares);
    }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    templates = tmp_path_factory.mktemp("templates")
    (templates / "perl").mkdir()
    for name, text in (
        ("language.toml", PROFILE),
        ("module.jinja", MODULE),
        ("driver.jinja", DRIVER),
    ):
        (templates / "perl" / name).write_text(text, encoding="utf-8")
    return templates


@pytest.fixture(scope="module")
def model():
    return random_model(7, mixed_schema(("no", 'y"es$@\n', "é")), n_trees=4)


@pytest.mark.matrix
def test_a_folder_is_a_language_that_is_exported_run_and_verified(folder, model, tmp_path):
    need("perl")
    (path,) = treekit.export(model, "perl", tmp_path / "forest", templates=str(folder))
    assert path.name == "forest.pl"
    report = treekit.verify(model, [path], templates=folder, random_rows=300)
    assert report.equal, report
    assert report.artifacts[0].rows > 300
    path.write_bytes(path.read_bytes().replace(b"<= $value", b"< $value"))
    assert not treekit.verify(model, [path], templates=folder, random_rows=300).equal
    with pytest.raises(VerificationError, match=r"cannot run 'forest\.pl'"):
        treekit.verify(model, [path])
    with pytest.raises(SettingError, match="unknown exporter 'perl'"):
        treekit.export(model, "perl", tmp_path / "forest")


@pytest.mark.matrix
@pytest.mark.usefixtures("fresh_registry")
def test_the_command_line_finds_it_by_a_setting_or_a_variable(folder, model, tmp_path, monkeypatch):
    need("perl")
    monkeypatch.chdir(tmp_path)
    model.save("m.treekit")
    export = ["export", "m.treekit", "--to", "perl", "-o"]
    verify = ["verify", "m.treekit", "--rows", "50"]
    for command, told in (
        ([*export, "a.pl", "--set", f"templates={folder}"], False),
        ([*verify, "a.pl", "--templates", str(folder)], False),
        ([*export, "b.pl"], True),
        ([*verify, "a.pl", "b.pl"], True),
    ):
        if told:
            monkeypatch.setenv("TREEKIT_TEMPLATES", str(folder))
        registry.configure()
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    assert Path("a.pl").read_bytes() == Path("b.pl").read_bytes()


def test_the_variable_s_folders_go_before_what_is_shipped(folder, model, tmp_path, monkeypatch):
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "table.jinja").write_text("// mine: {{ trees }}\n", encoding="utf-8")
    monkeypatch.setenv("TREEKIT_TEMPLATES", os.pathsep.join([str(tmp_path), str(folder)]))
    registry.configure()
    try:
        assert {"perl", "go", "rust"} <= set(registry.exporters())
        made = treekit.export(model, "go", tmp_path / "m.go", form="table")[0].read_text()
    finally:
        monkeypatch.undo()
        registry.configure()
    assert "// mine: 4" in made


@pytest.fixture
def faulty(folder, tmp_path, monkeypatch):
    """The variable names a folder that is not there, and one of which only perl is sound."""
    others = tmp_path / "others"
    shutil.copytree(folder / "perl", others / "perl")
    for name, profile in (
        ("broken", "suffix = 3"),
        ("no name", PROFILE),
        ("c", PROFILE),
        ("go", "suffix = ["),
        ("lua", PROFILE.replace(".pl", ".lua").partition("[verify]")[0]),
    ):
        (others / name).mkdir()
        (others / name / "language.toml").write_text(profile, encoding="utf-8")
    monkeypatch.setenv("TREEKIT_TEMPLATES", os.pathsep.join([str(tmp_path / "gone"), str(others)]))
    registry.configure()
    yield others
    monkeypatch.undo()
    registry.configure()


def test_faults_of_the_variable_s_folders_are_told_and_cost_nothing_else(faulty, model, tmp_path):
    with pytest.warns(TreekitWarning, match="TREEKIT_TEMPLATES") as told:
        assert {"c", "lua", "perl", "rust"} <= set(registry.exporters())
    assert len(told) == len(registry.faults()) == 5
    for fault, words in zip(
        registry.faults(),
        (
            "gone' is not a folder",
            "summary is missing",
            "cannot read",
            "is not a word",
            "rename its",
        ),
        strict=True,
    ):
        assert fault.startswith("TREEKIT_TEMPLATES: ")
        assert words in fault
    treekit.export(model, "c", tmp_path / "m.c")
    treekit.export(model, "perl", tmp_path / "m.pl")
    assert registry.exporter("c").suffix == ".c"
    with pytest.raises(SettingError, match=r"unknown exporter 'broken'.*summary is missing"):
        treekit.export(model, "broken", tmp_path / "m")
    # The shipped language is not what the user means by his own.
    with pytest.raises(SettingError, match=r"unknown exporter 'go'.*go/language\.toml'"):
        treekit.export(model, "go", tmp_path / "m")


@pytest.mark.usefixtures("faulty")
def test_treekit_plugins_lists_faulty_folders_and_strict_discovery_refuses_them():
    listed = CliRunner().invoke(main, ["plugins"])
    assert listed.exit_code == 0, listed.output
    assert "faults\n  TREEKIT_TEMPLATES: " in listed.stdout
    assert " perl " in listed.stdout
    registry.configure(strict=True)
    with pytest.raises(PluginError, match=r"^TREEKIT_TEMPLATES: '.*gone' is not a folder"):
        registry.exporters()


def test_a_setting_that_names_no_folder_of_the_language_says_so(folder, model, tmp_path):
    gone = str(tmp_path / "gone")
    with pytest.raises(ExportError, match=r"templates: '.*gone' is not a folder"):
        treekit.export(model, "perl", tmp_path / "m", templates=gone)
    with pytest.raises(SettingError, match=r"'perl'; .* holds no perl/language\.toml"):
        treekit.export(model, "perl", tmp_path / "m", templates=str(tmp_path))
    with pytest.raises(SettingError, match=r"'raku'; .*perl' holds no raku/language\.toml"):
        treekit.export(model, "raku", tmp_path / "m", templates=str(folder / "perl"))


@pytest.mark.matrix
def test_the_folder_of_the_language_itself_does_as_well_as_its_parent(
    folder, model, tmp_path, monkeypatch
):
    need("perl")
    (parent,) = treekit.export(model, "perl", tmp_path / "a.pl", templates=str(folder))
    monkeypatch.chdir(folder / "perl")
    (own,) = treekit.export(model, "perl", tmp_path / "b.pl", templates=".")
    assert own.read_bytes() == parent.read_bytes()
    assert treekit.verify(model, [own], templates=".", random_rows=20).equal
    # Its own templates go before those of a shipped language of that name.
    shutil.copytree(shipped_folders()[0] / "go", tmp_path / "go")
    (tmp_path / "go" / "table.jinja").write_text("// mine: {{ trees }}\n", encoding="utf-8")
    made = treekit.export(
        model, "go", tmp_path / "m.go", templates=str(tmp_path / "go"), form="table"
    )
    assert "// mine: 4" in made[0].read_text()


@pytest.mark.matrix
def test_verify_tells_of_a_faulty_language_beside_that_of_the_artifact(folder, model, tmp_path):
    need("perl")
    shutil.copytree(folder / "perl", tmp_path / "perl")
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "language.toml").write_text("suffix = [", encoding="utf-8")
    (path,) = treekit.export(model, "perl", tmp_path / "m.pl", templates=str(tmp_path))
    with pytest.warns(TreekitWarning, match=r"cannot read '.*go/language\.toml'"):
        assert treekit.verify(model, [path], templates=tmp_path, random_rows=20).equal


def test_verify_says_what_keeps_it_from_running_a_language(folder, faulty, model, tmp_path):
    warnings.simplefilter("ignore", TreekitWarning)
    file = tmp_path / "q.lua"
    file.touch()
    (tmp_path / "empty").mkdir()
    for templates, said in (
        (tmp_path / "gone", "templates: .*gone' is not a folder"),
        (tmp_path / "empty", "'lua' has no \\[verify\\] in '.*lua/language.toml'"),
        (faulty, "'q.lua'; .*'lua' has no \\[verify\\]"),
    ):
        with pytest.raises(VerificationError, match=said):
            treekit.verify(model, [file], templates=templates)
    other = file.rename(tmp_path / "q.tcl")
    for templates, said in (
        (tmp_path / "empty", "'q.tcl'; .*empty' holds no language, NAME/language.toml"),
        (faulty, "'q.tcl'; .*broken/language.toml': summary is missing"),
        (folder, "'q.tcl'; it runs files that end in .*\\.pl"),
    ):
        with pytest.raises(VerificationError, match=said):
            treekit.verify(model, [other], templates=templates)


def test_what_its_templates_have_no_words_for_is_refused(folder):
    schema = mixed_schema(())
    number = make_model(schema, [build_tree(leaf(1.0), schema)], combine="sum", link="exp")
    with pytest.raises(ExportError, match="'perl' cannot write trees whose values add up"):
        treekit.export(number, "perl", "m.pl", templates=str(folder))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('suffix = ".pl"', "suffix = 3", "suffix is 3; it is str"),
        ('suffix = ".pl"', "", "suffix is missing"),
        ('"bytes"', '"klingon"', "literals.strings is 'klingon'; it is one of 'bytes'"),
        ("[literals]", "[literals]\nspeed = 1", "literals.speed is not known; known here: strings"),
        ('needs = ["perl"]', "", "verify.needs is missing"),
        ('{ ".pl" = "module.jinja" }', "{}", "forms and files is too few"),
        ('suffix = ".pl"', 'suffix = ".plx"', "suffix is '.plx', not the ending"),
        ("[limits]", "forms = [", "cannot read"),
        ("[limits]\n", "[limits]\nabilities = 1\n", "literals.limits.abilities is not known"),
        ("[limits]", '[settings.form]\nhelp = "x"\n[limits]', "settings.form is treekit's own"),
        ('summary = "Perl', 'abilities = ["speed"]\nsummary = "Perl', "unknown ability 'speed'"),
    ],
)
def test_a_faulty_profile_is_named_with_what_it_should_say(
    folder, model, tmp_path, before, after, said
):
    assert before in PROFILE
    (tmp_path / "perl").mkdir()
    path = tmp_path / "perl" / "language.toml"
    path.write_text(PROFILE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(ExportError, match=r"language\.toml") as caught:
        treekit.export(model, "perl", tmp_path / "m.pl", templates=str(tmp_path))
    assert said in str(caught.value)


def test_a_profile_has_defaults_for_what_it_leaves_out(folder):
    profile = read_profile(folder / "perl")
    assert (profile.name, profile.forms, profile.file_name) == ("perl", ("table",), "any")
    assert profile.literals.limits.if_else_nodes == 10
    assert profile.verify is not None
    assert profile.verify.text == "utf-8"


def test_large_sums_of_a_language_without_integers_are_doubles_below_2_to_53(model):
    made = treekit.registry.exporter("javascript").export(model, "m")["m.mjs"].decode()
    assert "const leafUnits = Float64Array.of(" in made
    assert max(np.abs(model.units).max() * model.n_trees, 1) <= 2**53
