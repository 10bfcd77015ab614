"""Shell completion for ``doit``: verbs, builds, sources and options, in bash, zsh and fish.

The script asks ``corpusbuild names`` for what the folder holds, so a new configuration is completed at once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import tomlkit

from corpusbuild.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")

OF_BUILDS = ("plan", "pin", "list", "info", "log", "show", "why", "diff", "verify", "lock", "export", "clean")
"""Verbs that take the names of builds."""

_BASH = """\
_corpusbuild_doit() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[*]:1:COMP_CWORD-1}"
    # a colon cuts words in bash, and names hold one
    if declare -F _get_comp_words_by_ref >/dev/null; then _get_comp_words_by_ref -n : -c word; fi
    mapfile -t COMPREPLY < <(compgen -W "$(corpusbuild names -- $before 2>/dev/null)" -- "$word")
    if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$word"; fi
}
complete -o default -F _corpusbuild_doit doit
"""

_ZSH = """\
_corpusbuild_doit() {
    local -a names
    names=(${(f)"$(corpusbuild names -- ${words[2,CURRENT-1]} 2>/dev/null)"})
    compadd -a names || _files
}
compdef _corpusbuild_doit doit
"""

_FISH = """\
complete -c doit -f -a '(corpusbuild names -- (commandline -opc)[2..-1] 2>/dev/null)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def names(before: Sequence[str], verbs: Sequence[str], options: Sequence[str], configs: Path) -> Iterator[str]:
    """What may come next after the words ``before``: verbs and tasks first, then what the verb takes, and its options."""
    builds = sorted(path.stem for path in configs.glob("*.toml"))
    words = [word for word in before if not word.startswith("-")]
    if not words:
        yield from [v for v in verbs if v != "run"]
        yield from (f"build:{name}" for name in builds)
        yield from (f"fetch:{source}" for source in _sources(configs))
    elif words[0] in OF_BUILDS:
        yield from builds
    elif words[0] == "help":
        yield from verbs
    elif words[0].startswith(("build", "fetch")):
        yield from (f"build:{name}" for name in builds)
        yield from (f"fetch:{source}" for source in _sources(configs))
    if words:
        yield from (f"--{option}" for option in options)


def _sources(configs: Path) -> list[str]:
    """The ids of the sources of every configuration that can be read."""
    found: set[str] = set()
    for path in configs.glob("*.toml"):
        try:
            sources = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap().get("sources", [])
        except (ValueError, tomlkit.exceptions.TOMLKitError):
            continue  # a broken configuration is told of when it is built, not while a person types
        found |= {str(source["id"]) for source in sources if isinstance(source, dict) and "id" in source}
    return sorted(found)


def script(shell: str) -> str:
    """The script for a shell. ``ConfigError`` for one that is not known."""
    if shell not in SCRIPTS:
        raise ConfigError(f"there is no completion for {shell}: choose {', '.join(SHELLS)}")
    return SCRIPTS[shell]
