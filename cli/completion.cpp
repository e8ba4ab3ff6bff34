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
    for file in "$place"/*/"${2:-run.json}"; do
        [[ -e "$file" ]] || continue
        name="${file%/*}"
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
        _lockstep_words "$current" "run submit agent runs dashboard stop prune logs checkpoint tune new doctor bench man completion --help --version --cmake-dir"
    elif [[ "$command" == run && COMP_CWORD -eq 2 && "$current" == -* ]]; then
        _lockstep_words "$current" "--as-ray --dry-run --help -m -n --nproc-per-node --max-restarts --nnodes --standalone --redirects --tee --local-ranks-filter --log-dir --rdzv-id --role --no-python --fast-collectives --name --storage-path --hang-timeout"
    elif [[ "$command" == submit ]] && ((COMP_CWORD == 2)); then
        _lockstep_words "$current" "slurm --help"
    elif [[ "$command" == run || "$command" == submit ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    elif [[ "$current" == -* ]]; then
        case "$command" in
            logs) _lockstep_words "$current" "--rank --follow --help" ;;
            runs) _lockstep_words "$current" "--state --limit --json --help" ;;
            agent) _lockstep_words "$current" "--join --secret-file --secret-stdin --name --slots --wait --help" ;;
            dashboard) _lockstep_words "$current" "--host --port --cert --key --help" ;;
            doctor | bench) _lockstep_words "$current" "--json --help" ;;
            man) _lockstep_words "$current" "--output --help" ;;
            new) _lockstep_words "$current" "$([[ "${COMP_WORDS[2]}" == python ]] && echo --framework) --help" ;;
            stop) _lockstep_words "$current" "--timeout --kill --help" ;;
            tune)
                case "${COMP_WORDS[2]}" in
                    show) _lockstep_words "$current" "--metric --mode --sort --limit --json --help" ;;
                    plot) _lockstep_words "$current" "--output --metric --mode --x --y --help" ;;
                    *) _lockstep_words "$current" "--help" ;;
                esac
                ;;
            prune) _lockstep_words "$current" "--older-than --keep --max-size --state --yes --dry-run --json --help" ;;
            *) _lockstep_words "$current" "--help" ;;
        esac
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" == --state ]]; then
        _lockstep_words "$current" "running finished failed interrupted stopped died unreadable"
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" == --mode ]]; then
        _lockstep_words "$current" "min max"
    elif [[ "$command" == completion ]]; then
        _lockstep_words "$current" "bash zsh fish"
    elif [[ "$command" == bench ]]; then
        _lockstep_words "$current" "start recovery report checkpoint torch"
    elif [[ "$command" == man ]]; then
        _lockstep_words "$current" "run agent runs dashboard stop prune logs checkpoint tune new doctor bench completion"
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" == --framework ]]; then
        _lockstep_words "$current" "torch tensorflow jax lightning transformers xgboost plain"
    elif [[ "$command" == checkpoint ]] && ((COMP_CWORD == 2)); then
        _lockstep_words "$current" "list verify"
    elif [[ "$command" == tune ]] && ((COMP_CWORD == 2)); then
        _lockstep_words "$current" "show plot"
    elif [[ "$command" == tune ]] && ((COMP_CWORD == 3)); then
        _lockstep_runs "$current" experiment.sqlite
    elif [[ "$command" == tune && "${COMP_WORDS[2]}" == plot && "${COMP_WORDS[COMP_CWORD - 1]}" != -* ]]; then
        _lockstep_words "$current" "history parallel importance contour pareto"
    elif [[ "$command" == new ]]; then
        if ((COMP_CWORD == 2)); then
            _lockstep_words "$current" "cpp python"
        else
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$current")
        fi
    elif [[ "${COMP_WORDS[COMP_CWORD - 1]}" != --@(host|port|rank|limit|timeout|older-than|keep|max-size|metric|sort|x|y) ]]; then
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
    names=("$place"/*/${1:-run.json}(N:h:t))
    _alternative "runs:run:compadd -a names" "directories:directory:_files -/"
}

_lockstep() {
    local -a commands verbs looks kinds
    commands=(
        'run:Run a Python script or module'
        'submit:Submit a script as a job of a cluster'
        'runs:List runs'
        'dashboard:Show runs and experiments in a browser'
        'agent:Run workers for a run whose driver is on another machine'
        'stop:End a running run'
        'prune:Delete runs by age, number or size'
        'logs:Print what the workers of a run printed'
        'checkpoint:List or verify checkpoints'
        'tune:Look at experiments'
        'new:Write a project to start from'
        'doctor:Check this machine and installation'
        'bench:Measure Lockstep on this machine'
        'man:Print or install manual pages'
        'completion:Print a completion script'
    )
    verbs=('list:List checkpoints' 'verify:Check sizes and hashes')
    looks=('show:List trials' 'plot:Write plots as web pages')
    kinds=('cpp:A C++ project that trains a LibTorch model' 'python:A Python project')
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
        submit)
            if ((CURRENT == 3)); then
                compadd slurm
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
        dashboard)
            shift words
            ((CURRENT--))
            _arguments '--host[Listen on this address]:HOST:' '--port[Listen on this port]:number:' \
                '--cert[The certificate for TLS]:file:_files' '--key[Its private key]:file:_files' '1:run:_lockstep_runs'
            ;;
        agent)
            _arguments '--join[Where the driver listens]:HOST\:PORT:' '--secret-file[The secret of the run]:file:_files' \
                '--secret-stdin[The secret is the first line of standard input]' '--name[The name of the node]:name:' \
                '--slots[How many workers it has room for]:number:' '--wait[How long to wait for the driver]:seconds:'
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
        tune)
            if ((CURRENT == 3)); then
                _describe -t looks command looks
            elif ((CURRENT == 4)); then
                _lockstep_runs experiment.sqlite
            elif [[ "${words[3]}" == plot ]]; then
                compadd -- history parallel importance contour pareto --output --metric --mode --x --y
            else
                compadd -- --metric --mode --sort --limit --json
            fi
            ;;
        new)
            if ((CURRENT == 3)); then
                _describe -t kinds kind kinds
            else
                _files -/
            fi
            ;;
        doctor) compadd -- --json ;;
        bench) compadd -- start recovery report checkpoint torch --json ;;
        man) compadd -- run agent runs stop prune logs checkpoint tune new doctor bench completion --output ;;
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
    set -q argv[1]; or set argv run.json
    for file in $place/*/$argv[1]
        string replace -r '^.*/([^/]*)/[^/]*$' '$1' -- $file
    end
    __fish_complete_directories (commandline -ct)
end

complete -c lockstep -f
complete -c lockstep -n __fish_use_subcommand -l version -d 'Print the version'
complete -c lockstep -n __fish_use_subcommand -l cmake-dir -d 'Print the directory of the CMake package'
complete -c lockstep -s h -l help -d 'Print help'
complete -c lockstep -n __fish_use_subcommand -a run -d 'Run a Python script or module'
complete -c lockstep -n __fish_use_subcommand -a submit -d 'Submit a script as a job of a cluster'
complete -c lockstep -n __fish_use_subcommand -a runs -d 'List runs'
complete -c lockstep -n __fish_use_subcommand -a agent -d 'Run workers for a run whose driver is on another machine'
complete -c lockstep -n __fish_use_subcommand -a dashboard -d 'Show runs and experiments in a browser'
complete -c lockstep -n __fish_use_subcommand -a stop -d 'End a running run'
complete -c lockstep -n __fish_use_subcommand -a prune -d 'Delete runs by age, number or size'
complete -c lockstep -n __fish_use_subcommand -a logs -d 'Print what the workers of a run printed'
complete -c lockstep -n __fish_use_subcommand -a checkpoint -d 'List or verify checkpoints'
complete -c lockstep -n __fish_use_subcommand -a tune -d 'Look at experiments'
complete -c lockstep -n __fish_use_subcommand -a new -d 'Write a project to start from'
complete -c lockstep -n __fish_use_subcommand -a doctor -d 'Check this machine and installation'
complete -c lockstep -n __fish_use_subcommand -a bench -d 'Measure Lockstep on this machine'
complete -c lockstep -n __fish_use_subcommand -a man -d 'Print or install manual pages'
complete -c lockstep -n '__fish_seen_subcommand_from doctor bench' -l json -d 'Print a JSON array'
complete -c lockstep -n '__fish_seen_subcommand_from bench' -a 'start recovery report checkpoint torch'
complete -c lockstep -n __fish_use_subcommand -a completion -d 'Print a completion script'
complete -c lockstep -n '__fish_seen_subcommand_from run' -F
complete -c lockstep -n '__fish_seen_subcommand_from submit; and not __fish_seen_subcommand_from slurm' -a slurm
complete -c lockstep -n '__fish_seen_subcommand_from slurm' -F
complete -c lockstep -n '__fish_seen_subcommand_from run' -l as-ray -d 'Let import ray be Lockstep'
complete -c lockstep -n '__fish_seen_subcommand_from run' -s m -x -d 'A module, as python -m'
complete -c lockstep -n '__fish_seen_subcommand_from run' -s n -l nproc-per-node -x -d 'Workers, for a script of torchrun'
complete -c lockstep -n '__fish_seen_subcommand_from run' -l max-restarts -x -d 'Restarts after a failure'
complete -c lockstep -n '__fish_seen_subcommand_from run' -l fast-collectives -d 'gloo becomes lockstep'
complete -c lockstep -n '__fish_seen_subcommand_from run' -l dry-run -d 'Print what would be done'
complete -c lockstep -n '__fish_seen_subcommand_from runs dashboard stop prune' -a '(__lockstep_runs)'
complete -c lockstep -n '__fish_seen_subcommand_from runs prune' -l state -x -a 'running finished failed interrupted stopped died unreadable'
complete -c lockstep -n '__fish_seen_subcommand_from runs' -l limit -x -d 'Only the N newest'
complete -c lockstep -n '__fish_seen_subcommand_from runs prune' -l json -d 'Print a JSON array'
complete -c lockstep -n '__fish_seen_subcommand_from dashboard' -l host -x -d 'Listen on this address'
complete -c lockstep -n '__fish_seen_subcommand_from dashboard' -l port -x -d 'Listen on this port'
complete -c lockstep -n '__fish_seen_subcommand_from dashboard' -l cert -r -d 'The certificate for TLS'
complete -c lockstep -n '__fish_seen_subcommand_from dashboard' -l key -r -d 'Its private key'
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
complete -c lockstep -n '__fish_seen_subcommand_from tune; and not __fish_seen_subcommand_from show plot' -a 'show plot'
complete -c lockstep -n '__fish_seen_subcommand_from show plot' -a '(__lockstep_runs experiment.sqlite)'
complete -c lockstep -n '__fish_seen_subcommand_from plot' -a 'history parallel importance contour pareto'
complete -c lockstep -n '__fish_seen_subcommand_from show plot' -l metric -x -d 'Compare trials by this metric'
complete -c lockstep -n '__fish_seen_subcommand_from show plot' -l mode -x -a 'min max'
complete -c lockstep -n '__fish_seen_subcommand_from show' -l sort -x -d 'Sort by this metric'
complete -c lockstep -n '__fish_seen_subcommand_from show' -l limit -x -d 'At most N trials'
complete -c lockstep -n '__fish_seen_subcommand_from show' -l json -d 'Print a JSON object'
complete -c lockstep -n '__fish_seen_subcommand_from plot' -s o -l output -r -d 'A directory or file'
complete -c lockstep -n '__fish_seen_subcommand_from plot' -l x -x -d 'Parameter or metric'
complete -c lockstep -n '__fish_seen_subcommand_from plot' -l y -x -d 'Parameter or metric'
complete -c lockstep -n '__fish_seen_subcommand_from new; and not __fish_seen_subcommand_from cpp python' -a cpp -d 'A C++ project'
complete -c lockstep -n '__fish_seen_subcommand_from new; and not __fish_seen_subcommand_from cpp python' -a python -d 'A Python project'
complete -c lockstep -n '__fish_seen_subcommand_from python' -l framework -x -a 'torch tensorflow jax lightning transformers xgboost plain'
complete -c lockstep -n '__fish_seen_subcommand_from cpp python' -a '(__fish_complete_directories (commandline -ct))'
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
