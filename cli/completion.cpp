#include <lockstep/error.h>

#include <cstdio>
#include <map>

#include "base/text.h"
#include "commands.h"

namespace lockstep::cli {
namespace {

constexpr const char* kBash = R"(# Completion of `lockstep` for bash: source <(lockstep completion bash)
_lockstep_runs() {
    local place="${LOCKSTEP_STORAGE_PATH:-$HOME/lockstep_results}" file name
    compopt -o filenames 2>/dev/null
    for file in "$place"/*/run.json; do
        [[ -e "$file" ]] || continue
        name="${file%/run.json}"
        name="${name##*/}"
        [[ "$name" == "$1"* ]] && COMPREPLY+=("$name")
    done
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -d -- "$1")
}

_lockstep_words() {
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$2" -- "$1")
}

_lockstep() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" word
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _lockstep_words "$current" "run runs stop prune logs checkpoint new completion --help --version --cmake-dir"
    elif [[ "$command" == run && COMP_CWORD -eq 2 && "$current" == -* ]]; then
        _lockstep_words "$current" "--as-ray --help -m"
    elif [[ "$command" == run ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    elif [[ "$current" == -* ]]; then
        case "$command" in
            logs) _lockstep_words "$current" "--rank --follow --help" ;;
            runs) _lockstep_words "$current" "--state --limit --json --help" ;;
            stop) _lockstep_words "$current" "--timeout --kill --help" ;;
            prune) _lockstep_words "$current" "--older-than --keep --max-size --state --yes --dry-run --json --help" ;;
            *) _lockstep_words "$current" "--help" ;;
        esac
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" == --state ]]; then
        _lockstep_words "$current" "running finished failed interrupted stopped died unreadable"
    elif [[ "$command" == completion ]]; then
        _lockstep_words "$current" "bash zsh fish"
    elif [[ "$command" == checkpoint ]] && ((COMP_CWORD == 2)); then
        _lockstep_words "$current" "list verify"
    elif [[ "$command" == new ]]; then
        if ((COMP_CWORD == 2)); then
            _lockstep_words "$current" "cpp"
        else
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$current")
        fi
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" != --@(rank|limit|timeout|older-than|keep|max-size) ]]; then
        _lockstep_runs "$current"
    fi
}

complete -F _lockstep lockstep
)";

constexpr const char* kZsh = R"(#compdef lockstep
# Completion of `lockstep` for zsh: source <(lockstep completion zsh), after compinit
_lockstep_runs() {
    local place="${LOCKSTEP_STORAGE_PATH:-$HOME/lockstep_results}"
    local -a names
    names=("$place"/*/run.json(N:h:t))
    _alternative "runs:run:compadd -a names" "directories:directory:_files -/"
}

_lockstep() {
    local -a commands verbs kinds
    commands=(
        'run:Run a Python script or module'
        'runs:List runs'
        'stop:End a running run'
        'prune:Delete runs by age, number or size'
        'logs:Print what the workers of a run printed'
        'checkpoint:List or verify checkpoints'
        'new:Write a project to start from'
        'completion:Print a completion script'
    )
    verbs=('list:List checkpoints' 'verify:Check sizes and hashes')
    kinds=('cpp:A C++ project that trains a LibTorch model')
    if ((CURRENT == 2)); then
        _arguments '--help[Print help]' '--version[Print the version]' '--cmake-dir[Print the directory of the CMake package]' '*: :->first'
        _describe -t commands command commands
        return
    fi
    case "${words[2]}" in
        run)
            if ((CURRENT == 3)) && [[ "${words[3]}" == -* ]]; then
                compadd -- --as-ray --help -m
            else
                _files
            fi
            ;;
        runs)
            shift words
            ((CURRENT--))
            _arguments '*--state[Only runs in these states]:state:(running finished failed interrupted stopped died unreadable)' \
                '--limit[Only the N newest]:number:' '--json[Print a JSON array]' '1:run:_lockstep_runs'
            ;;
        stop)
            shift words
            ((CURRENT--))
            _arguments '--timeout[How long to wait]:time:' '--kill[Kill the driver at once]' '1:run:_lockstep_runs'
            ;;
        prune)
            shift words
            ((CURRENT--))
            _arguments '--older-than[That ended longer ago]:time:' '--keep[All but the N newest]:number:' \
                '--max-size[The oldest, until the others have this size]:size:' \
                '*--state[Only runs in these states]:state:(finished failed interrupted stopped died unreadable)' \
                '(-y --yes)'{-y,--yes}'[Do not ask]' '--dry-run[Only show]' '--json[Print a JSON array]' '1:run:_lockstep_runs'
            ;;
        logs)
            shift words
            ((CURRENT--))
            _arguments '--rank[Only this rank]:rank:' '(-f --follow)'{-f,--follow}'[Until the run ends]' '1:run:_lockstep_runs'
            ;;
        checkpoint)
            if ((CURRENT == 3)); then
                _describe -t verbs verb verbs
            else
                _lockstep_runs
            fi
            ;;
        new)
            if ((CURRENT == 3)); then
                _describe -t kinds kind kinds
            else
                _files -/
            fi
            ;;
        completion) compadd bash zsh fish ;;
    esac
}

if [ "$funcstack[1]" = "_lockstep" ]; then
    _lockstep "$@"
else
    compdef _lockstep lockstep
fi
)";

constexpr const char* kFish =
    R"(# Completion of `lockstep` for fish: lockstep completion fish > ~/.config/fish/completions/lockstep.fish
function __lockstep_runs
    set -l place $LOCKSTEP_STORAGE_PATH
    test -n "$place"; or set place $HOME/lockstep_results
    for file in $place/*/run.json
        string replace -r '^.*/([^/]*)/run\.json$' '$1' -- $file
    end
    __fish_complete_directories (commandline -ct)
end

complete -c lockstep -f
complete -c lockstep -n __fish_use_subcommand -l version -d 'Print the version'
complete -c lockstep -n __fish_use_subcommand -l cmake-dir -d 'Print the directory of the CMake package'
complete -c lockstep -s h -l help -d 'Print help'
complete -c lockstep -n __fish_use_subcommand -a run -d 'Run a Python script or module'
complete -c lockstep -n __fish_use_subcommand -a runs -d 'List runs'
complete -c lockstep -n __fish_use_subcommand -a stop -d 'End a running run'
complete -c lockstep -n __fish_use_subcommand -a prune -d 'Delete runs by age, number or size'
complete -c lockstep -n __fish_use_subcommand -a logs -d 'Print what the workers of a run printed'
complete -c lockstep -n __fish_use_subcommand -a checkpoint -d 'List or verify checkpoints'
complete -c lockstep -n __fish_use_subcommand -a new -d 'Write a project to start from'
complete -c lockstep -n __fish_use_subcommand -a completion -d 'Print a completion script'
complete -c lockstep -n '__fish_seen_subcommand_from run' -F
complete -c lockstep -n '__fish_seen_subcommand_from run' -l as-ray -d 'Let import ray be Lockstep'
complete -c lockstep -n '__fish_seen_subcommand_from run' -s m -x -d 'A module, as python -m'
complete -c lockstep -n '__fish_seen_subcommand_from runs stop prune' -a '(__lockstep_runs)'
complete -c lockstep -n '__fish_seen_subcommand_from runs prune' -l state -x -a 'running finished failed interrupted stopped died unreadable'
complete -c lockstep -n '__fish_seen_subcommand_from runs' -l limit -x -d 'Only the N newest'
complete -c lockstep -n '__fish_seen_subcommand_from runs prune' -l json -d 'Print a JSON array'
complete -c lockstep -n '__fish_seen_subcommand_from stop' -l timeout -x -d 'How long to wait'
complete -c lockstep -n '__fish_seen_subcommand_from stop' -l kill -d 'Kill the driver at once'
complete -c lockstep -n '__fish_seen_subcommand_from prune' -l older-than -x -d 'That ended longer ago'
complete -c lockstep -n '__fish_seen_subcommand_from prune' -l keep -x -d 'All but the N newest'
complete -c lockstep -n '__fish_seen_subcommand_from prune' -l max-size -x -d 'The oldest, until the others have this size'
complete -c lockstep -n '__fish_seen_subcommand_from prune' -s y -l yes -d 'Do not ask'
complete -c lockstep -n '__fish_seen_subcommand_from prune' -l dry-run -d 'Only show'
complete -c lockstep -n '__fish_seen_subcommand_from logs' -a '(__lockstep_runs)'
complete -c lockstep -n '__fish_seen_subcommand_from logs' -l rank -x -d 'Only this rank'
complete -c lockstep -n '__fish_seen_subcommand_from logs' -s f -l follow -d 'Until the run ends'
complete -c lockstep -n '__fish_seen_subcommand_from checkpoint; and not __fish_seen_subcommand_from list verify' -a 'list verify'
complete -c lockstep -n '__fish_seen_subcommand_from list verify' -a '(__lockstep_runs)'
complete -c lockstep -n '__fish_seen_subcommand_from new; and not __fish_seen_subcommand_from cpp' -a cpp -d 'A C++ project'
complete -c lockstep -n '__fish_seen_subcommand_from cpp' -a '(__fish_complete_directories (commandline -ct))'
complete -c lockstep -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
)";

}  // namespace

int completion(const std::string& shell) {
  const std::map<std::string, const char*> scripts{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  const auto found = scripts.find(shell);
  if (found == scripts.end())
    throw ConfigError("[completion] there is no script for " + in_quotes(shell) + "; use bash, zsh or fish");
  std::fputs(found->second, stdout);
  return 0;
}

}  // namespace lockstep::cli
