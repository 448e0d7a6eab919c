"""Everything that the policy for shell commands knows about programs, keywords and builtins of shells.

To add a program, edit only this file. The first part is for `allow_patterns`: which programs cannot be allowed with
any arguments, and which of their arguments are harmless (`KNOWN`). A program that is not listed may be allowed with
any arguments. The last part is for `deny_rules`: which programs run commands that are in their arguments. Data
only.
"""

import re
from dataclasses import dataclass
from typing import Final


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAFE_BUILTINS: Final = frozenset((":", "true", "false", "echo", "pwd", "cd", "type", "which", "kill"))
"""Builtins that evaluate none of their arguments, in bash, dash and zsh."""

BUILTINS: Final = _word_set(
    ". [ alias autoload bg bind break builtin bye caller chdir command compadd compctl compdef compgen complete"
    " compopt continue declare dirs disable disown echotc echoti emulate enable eval exec exit export fc fg"
    " float functions getln getopts hash help history integer jobs let limit local log logout mapfile"
    " noglob popd print printf pushd pushln r read readarray readonly rehash return sched set setopt shift"
    " shopt source suspend test times trap ttyctl typeset ulimit umask unalias unfunction unhash unlimit"
    " unset unsetopt vared wait whence where zcompile zformat zle zmodload zparseopts zpty zselect zsocket"
    " zstyle ztcp"
)
"""Builtins that evaluate arguments, or change the meaning of later words, in one of the shells."""

KEYWORDS: Final = _word_set(
    "! { } [[ ]] (( case coproc do done elif else end esac fi for foreach function if in nocorrect repeat"
    " select then until while"
)

POSIX_SHELLS: Final = _word_set("sh bash zsh dash ksh")
SHELLS: Final = POSIX_SHELLS | _word_set(
    "ash mksh lksh oksh pdksh ksh93 rksh rbash rzsh yash fish csh tcsh nu nushell xonsh"
    " elvish ion osh ysh rc es pwsh powershell cmd busybox toybox"
)
INTERPRETERS: Final = _word_set(
    "python pypy ipython jython micropython node nodejs deno bun ruby jruby irb perl php lua luajit tclsh wish"
    " expect r rscript julia octave matlab ghci runghc runhaskell scala groovy clojure clj kotlin kotlinc"
    " babel-node vite-node jiti zx bb erb pry php-cgi phpdbg pythonw graalpy mono wasmtime bpython ptpython"
    " pudb jupyter papermill pydoc msfconsole duckdb"
    " jshell swift racket guile scheme sbcl clisp erl elixir iex ocaml osascript tsx ts-node gjs qjs d8"
)
_STARTING_WRAPPERS: Final = _word_set(
    "- env sudo doas su runuser gosu pkexec sg newgrp nohup time timeout nice ionice chrt taskset numactl"
    " stdbuf unbuffer setsid setpriv setarch linux32 linux64 capsh runcon prlimit choom chroot unshare nsenter"
    " bwrap firejail proot fakeroot eatmydata flock watch entr parallel xargs strace ltrace perf valgrind gdb"
    " lldb rr script scriptreplay rlwrap tmux screen at batch crontab systemd-run systemctl machinectl"
    " start-stop-daemon run-parts dbus-run-session dbus-launch xvfb-run ssh-agent gpg-agent caffeinate open"
    " xdg-open start xterm proxychains proxychains4 torsocks catchsegv ldd ld.so mise asdf direnv dotenv"
    " foreman nodemon concurrently npx pnpx bunx uvx pipx poetry pipenv hatch rye pdm conda mamba pixi nix"
    " nix-shell guix nix-env devbox pyenv rbenv nodenv volta fnm hyperfine watchexec systemd-cat systemd-nspawn"
    " systemd-inhibit dumb-init tini envdir chpst setuidgid softlimit faketime fakechroot cgexec arch op"
    " aws-vault"
    " doppler chamber sops py-spy pyinstrument memray viztracer scalene kernprof zellij byobu dtach abduco"
    " autoexpect daemonize supervisord supervisorctl pm2 forever honcho circusd wsl gdbserver lldb-server"
    " trace-cmd"
    " bpftrace cross-env npm-run-all run-s run-p start-server-and-test onchange chokidar cargo-watch run-one"
    " autossh"
    " torchrun mpirun mpiexec srun sbatch ray accelerate deepspeed sem msgexec msgfilter asciinema ttyd tmate"
    " xcrun"
    " bear scan-build wine qemu-x86_64"
)
_REMOTE: Final = _word_set(
    "ssh sshpass mosh rsh rlogin telnet ftp sftp scp rsync nc ncat netcat socat docker podman nerdctl buildah"
    " docker-compose kubectl helm oc lxc vagrant virsh ansible ansible-playbook salt fab"
    " slogin pssh parallel-ssh ansible-console ansible-pull salt-call puppet chef lftp tftp rexec dsh pdsh"
    " clush cssh mussh minikube multipass limactl colima tcpserver"
    " xinetd openvpn stunnel"
)
_BUILDERS: Final = _word_set(
    "make nmake ninja cmake ctest meson scons bazel bazelisk buck ant mvn gradle gradlew sbt rake bundle gem"
    " tox nox invoke just task npm pnpm yarn corepack lerna nx turbo jest vitest mocha webpack vite pip pip3"
    " uv easy_install cargo rustup rustc go dotnet msbuild composer cpan cabal stack mix rebar3 apt apt-get"
    " aptitude dpkg rpm yum dnf pacman brew port snap flatpak terraform packer pulumi gcc cc g++ c++ clang"
    " clang++ cpp ld tcc javac java protoc bison yacc latex pdflatex xelatex lualatex tex pre-commit"
    " gulp grunt playwright cypress karma nyc c8 zig nim dart flutter crystal cargo-nextest cross dlv air"
    " gotestsum"
    " golangci-lint lein jbang xcodebuild fastlane prove bats snakemake nextflow dbt doit pants behave robot"
    " locust"
    " django-admin alembic prefect tofu terragrunt skaffold tilt helmfile gfortran c99 c89 clang-tidy cppcheck"
    " gcovr"
    " doxygen bmake stylelint pyright basedpyright dmypy toolwire claude codex gemini aider"
    " husky act earthly mage mvnw rails airflow dvc mlflow streamlit rollup parcel nvm original-awk"
    " ccache distcc coverage sphinx-build gunicorn uvicorn flask celery rspec rubocop phpunit flake8"
)
_TOOLS: Final = _word_set(
    "find fd fdfind bfs patch git gh glab hub hg svn cvs bzr jj tig awk nawk mawk sed tar bsdtar star zip"
    " cpio pax"
    " split csplit install diff3 sdiff vi vim view vimdiff nvim ex rvim rview ed red emacs emacsclient nano"
    " pico joe micro hx helix kak mc code subl less more most pager man info bat batcat ag ack ugrep ug fzf sk"
    " zgrep zless zmore zdiff sqlite psql mysql mariadb mongo mongosh redis-cli dc m4 gnuplot tcpdump tshark"
    " perldoc mlr fx cloc xzless bzless ncdu lazygit gitk git-lfs pgcli mycli litecli git-shell"
    " git-upload-pack sudoedit visudo groff radare2 cgdb ddd xdotool sendmail exim"
    " nmap openssl gpg gpg2 ssh-keygen ssh-add wget aria2c yt-dlp youtube-dl rclone restic borg pandoc convert"
    " magick mogrify identify gs mail mailx mutt lynx w3m ctags iptables ip mount sshfs"
    " logrotate update-alternatives journalctl service rename prename file-rename chronic ifne pee zrun vipe"
    " vidir"
)
STARTERS: Final = SHELLS | INTERPRETERS | _STARTING_WRAPPERS | _REMOTE | _BUILDERS | _TOOLS
"""Programs that start another program or run code, given certain arguments."""

GNU: Final = _word_set(
    "awk cp csplit dd ed env find install ln m4 make mv nice nohup patch sed shred shuf sort split stdbuf tar"
    " tee"
    " time timeout truncate uniq xargs"
)
"""Programs whose names have the prefix `g` on some systems."""

WRITERS: Final = _word_set(
    "cp mv ln tee dd truncate sponge curl shred unzip 7z unrar iconv xmllint xsltproc objcopy strip ar"
    " zstd brotli lz4"
)
"""Programs that can write any content to a file that an argument names."""

READ_DATA: Final = _word_set("awk nawk mawk sed git xargs tar bsdtar less more split csplit openssl gpg")
"""The `STARTERS` that never run their input as code. The others are not allowed after a pipe."""


_OPERAND: Final = re.compile(r"(?s:[^-].*)?")


@dataclass(frozen=True)
class Rest:
    """The harmless words after some first words of a listed program: those that start no other program."""

    options: re.Pattern[str]
    """The options, each a whole word."""
    operands: re.Pattern[str] = _OPERAND
    """The words that are not options."""
    first: re.Pattern[str] | None = None
    """The first operand, if it must look different from the others."""
    any_option: bool = False
    """All other options are harmless too."""
    implied: bool = True
    """`...` allows the harmless options too, and the rule `git log` means `git log ...`."""


def _compile_options(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_NONE: Final = _compile_options(r"(?!)")
ANYTHING: Final = Rest(_compile_options(r"(?s:.*)"), any_option=True)
"""Any arguments, for a script that the rule names."""
_NUMBER: Final = r"-\d+"
_GIT: Final = _compile_options(
    _NUMBER,
    r"-[abipqrsvwz]+|--|-[nSGLU]|-n\d+|-U\d+|-[SGL][^-].*|-u(no|normal|all)?|-[MC]\d*%?",
    r"--(oneline|stat|shortstat|numstat|summary|graph|all|patch|no-patch|name-only|name-status|decorate|reverse)",
    r"--(merges|no-merges|first-parent|follow|abbrev-commit|cached|staged|check|short|branch|ignored|list)",
    r"--(show-current|remotes|verbose|quiet|no-color|color=never|word-diff|ignore-case|minimal|no-renames|raw)",
    r"--(modified|others|deleted|exclude-standard|abbrev-ref|verify|show-toplevel|is-inside-work-tree|tags)",
    r"--(porcelain|long|always|dirty|no-ext-diff|no-textconv|relative|merged|no-merged|contains)(=[\w-]+)?",
    r"--(max-count|skip|unified|abbrev|inter-hunk-context)=\d+",
    r"--(since|until|after|before|author|committer|grep|date|diff-filter|untracked-files|sort|points-at)=.*",
    r"--(pretty|format)(=(?!.*%[-+ ]?G).*)?",
)
_GIT_WRITE: Final = _compile_options(
    r"-[ambBcqufA]|-am|-rf?|--|--(message|all|amend|no-edit|staged|worktree|cached|create|hard|soft|mixed|abort)",
    r"--(continue|skip|no-ff|ff-only|squash|delete|include-untracked|quiet|force|update|dry-run|source)",
    r"--message=.*",
)
_PYTEST: Final = _compile_options(
    _NUMBER,
    r"-[qvxslk]+|-m|-n|-r[A-Za-z]+|--",
    r"--(lf|last-failed|ff|failed-first|nf|sw|stepwise|co|collect-only|exitfirst|quiet|verbose|no-header)",
    r"--(no-summary|no-cov|showlocals|strict-markers|cov|markers|fixtures|version|help)",
    r"--(tb|color|capture|log-cli-level|verbosity|maxfail|durations|timeout)=\w+|--cov=[\w./-]*",
    r"--cov-report=term(-missing)?|--deselect=.*|--ignore=.*",
)
_SORT_FLAGS: Final = "[bdfghiMnRrVcCmsuz]*"
_FIND: Final = _compile_options(
    r"-\d+[A-Za-z]?",
    r"-i?(name|path|wholename|regex)|-type|-maxdepth|-mindepth|-depth|-size|-[amc]time|-[amc]min|-newer|-perm",
    r"-user|-group|-empty|-print0?|-prune|-not|-o|-a|-or|-and|-readable|-writable|-executable|-regextype|-links",
    r"-true|-false|-mount|-xdev|-L|-P|-H|-quit|-samefile",
)
_CARGO: Final = _compile_options(
    r"-[qvr]+|-p|-j|-j\d+|--",
    r"--(release|workspace|all|lib|bins|bin|tests|test|examples|example|benches|doc|all-targets|all-features)",
    r"--(no-default-features|features|package|exclude|no-run|no-fail-fast|quiet|verbose|locked|offline|frozen)",
    r"--(features|package|exclude|message-format|jobs|test|test-threads)=[\w,-]+",
    r"--(nocapture|ignored|include-ignored|exact|check|list)",
)
_GO: Final = _compile_options(
    r"--?(v|race|short|cover|json|failfast|x|n|a|benchmem)",
    r"--?(run|bench|count|timeout|parallel|skip|tags|list|cpu)(=.*)?",
)
_RG: Final = _compile_options(
    r"-[aiIlLncovwxsSFPNHhUu.]+|--",
    r"-[gtTABCmedMj]|-[ABCmdMj]\d+|-[gtT][^-].*|-e.*",
    r"--(files|files-with-matches|files-without-match|hidden|no-ignore|no-heading|heading|count|json|stats|trim)",
    r"--(line-number|no-line-number|ignore-case|case-sensitive|smart-case|word-regexp|fixed-strings|multiline)",
    r"--(multiline-dotall|only-matching|invert-match|with-filename|no-filename|vimgrep|pcre2|column|text|passthru)",
    r"--(type|type-not|glob|iglob|max-count|max-depth|context|after-context|before-context|sort|sortr)(=.*)?",
    r"--(color|colors|replace|regexp|max-filesize|max-columns|threads)(=.*)?",
)

_GIT_READERS: Final = _split(
    "status log diff show blame describe ls-files ls-tree cat-file rev-parse rev-list shortlog merge-base"
)
_GIT_WRITERS: Final = _split(
    "add commit mv rm restore switch checkout stash tag merge reset cherry-pick revert"
)
_SCRIPTED: Final = _split(
    "python pypy node nodejs ruby perl php lua luajit julia rscript tclsh sh bash zsh dash ksh"
)
_CODE_MODULES: Final = _split(
    "pdb timeit profile cProfile trace runpy code codeop asyncio pip ensurepip IPython ipython idlelib bdb"
    " doctest"
    " zipapp pydoc antigravity pickle inspect py torch accelerate deepspeed ipykernel jupyter coverage debugpy"
)

_NO_FILE_OF_OPTIONS: Final = re.compile(r"(?s:[^-@].*)?")
_MYPY: Final = Rest(
    _compile_options(r"--strict|--pretty|--no-error-summary|--ignore-missing-imports|-[pmv]"),
    _NO_FILE_OF_OPTIONS,
)
_PYLINT: Final = Rest(_compile_options(r"--(disable|enable)=[\w,-]+|-E|--errors-only"), _NO_FILE_OF_OPTIONS)
_PYTESTS: Final = (
    ("pytest",),
    ("py.test",),
    ("python", "-m", "pytest"),
    *((each, "run", "pytest") for each in ("uv", "poetry", "pipenv", "pdm", "hatch", "rye")),
)

KNOWN: Final[dict[tuple[str, ...], Rest | None]] = {
    **{("git", each): Rest(_GIT) for each in _GIT_READERS},
    **{("git", each): Rest(_GIT_WRITE, implied=False) for each in _GIT_WRITERS},
    ("git", "branch"): Rest(
        _compile_options(r"-[arv]|-vv|--(all|remotes|verbose|list|show-current|merged|no-merged|contains)")
    ),
    ("find",): Rest(_FIND),
    ("sort",): Rest(
        _compile_options(
            rf"-{_SORT_FLAGS}(k[\d.,{_SORT_FLAGS[1:-2]}]*|t[^-]?)?",
            r"--(reverse|unique|numeric-sort|human-numeric-sort|version-sort|ignore-case|stable)",
        )
    ),
    ("rg",): Rest(_RG),
    **{each: Rest(_PYTEST, _NO_FILE_OF_OPTIONS) for each in _PYTESTS},
    ("uniq",): Rest(
        _compile_options(r"-[cdDiuz]+|-[fsw]\d*"), operands=_NONE, first=_OPERAND
    ),  # it writes to a second operand
    ("xxd",): Rest(_compile_options(r"-[pbuiE]+|-[slcg]\d*"), operands=_NONE, first=_OPERAND),
    ("shuf",): Rest(_compile_options(r"-[enrz]+|-i|-n\d+")),
    ("tree",): Rest(_compile_options(r"-[adfiIlLPhpsugDFCnrtUvxQ]+|--(dirsfirst|noreport|gitignore)")),
    ("file",): Rest(_compile_options(r"-[bikLhNnprsv0]+|--mime(-type|-encoding)?|--brief")),
    ("mypy",): _MYPY,
    ("python", "-m", "mypy"): _MYPY,
    ("eslint",): Rest(
        _compile_options(r"--(fix|quiet|ext|cache)|--max-warnings=\d+|--format=(stylish|json|unix)")
    ),
    ("prettier",): Rest(_compile_options(r"--(check|write|list-different)|-[cwl]")),
    ("pylint",): _PYLINT,
    ("python", "-m", "pylint"): _PYLINT,
    **{("python", "-m", each): None for each in _CODE_MODULES},
    **{("python", "-m", each): None for each in sorted(STARTERS)},
    ("python", "-m", "*"): ANYTHING,
    **{(each, "*"): ANYTHING for each in _SCRIPTED},
    **{("cargo", each): Rest(_CARGO) for each in ("build", "test", "check", "clippy", "fmt", "doc")},
    **{("go", each): Rest(_GO) for each in ("build", "test", "vet", "fmt", "list")},
    ("sed", "-n"): Rest(_compile_options("-n"), first=re.compile(r"(\d+|\$)(,(\d+|\$))?p")),
    **{(each,): Rest(_NONE, any_option=True, implied=False) for each in WRITERS},
}
"""First words -> the harmless words after them, or None if any word may start a program. The first matching row
counts; `*` in a row matches a word that does not begin with `-`."""

CHECKED: Final = frozenset(row[0] for row in KNOWN if len(row) == 1) - STARTERS - WRITERS
"""Programs that may be allowed by their name alone, because `KNOWN` says which of their options are harmless."""

LISTED: Final = STARTERS | WRITERS | CHECKED
"""Programs that cannot be allowed with any arguments."""

# For `deny_rules`.

FOREIGN_SHELLS: Final = SHELLS - POSIX_SHELLS - {"busybox", "toybox"} | _word_set(
    "pwsh.exe powershell.exe cmd.exe"
)
"""Shells with a syntax of their own."""

HIDING_BUILTINS: Final = _word_set(
    ". source trap alias enable bind fc hash complete compgen mapfile readarray"
)
"""Builtins that run commands which are not in the line, now or later."""

EVALUATING_BUILTINS: Final = _word_set(
    "let declare typeset local export readonly integer test [ printf unset read"
)
"""Builtins that may run a substitution in a quoted subscript."""

INPUT_WRAPPERS: Final = _word_set("xargs parallel")
"""Wrappers that add words from their input."""

WORD_WRAPPERS: Final = _word_set("find fd")
"""Wrappers that never run one word as a whole command, unless it belongs to a wrapper that they start."""

WRAPPERS: Final = (
    INPUT_WRAPPERS
    | WORD_WRAPPERS
    | _word_set(
        "- sudo doas su runuser gosu env nohup time command exec builtin noglob nocorrect nice ionice chrt taskset"
        " timeout stdbuf setsid chroot busybox toybox watch strace ltrace unshare nsenter flock script ssh"
        " systemd-run caffeinate entr docker podman kubectl unbuffer proxychains"
    )
)
"""Programs that run a command which is among their words."""

OPTIONS_WITH_VALUE: Final = {
    "env": "uCPa",
    "sudo": "CDghpRrtTUuac",
    "doas": "aCu",
    "ssh": "BbcDEeFIiJLlmOopQRSWw",
    "chroot": "",
    "unshare": "RSGw",
    "nsenter": "tSGwr",
}
"""Wrapper -> its short options that take a value."""

COMMAND_READERS: Final = (
    POSIX_SHELLS | FOREIGN_SHELLS | OPTIONS_WITH_VALUE.keys() | {"eval", "su", "parallel"}
)
"""Programs whose further words are read as commands, wherever they are in a line."""


def base_name(program: str) -> str:
    """Return the name of a program without its folder, in lower case."""
    return program.replace("\\", "/").rpartition("/")[2].casefold()
