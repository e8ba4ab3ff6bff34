# Sourced: environments are kept in the user's cache, by what they were made from, so that a new clone links them instead of
# installing all packages again.
venv_cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/venvs

# take_venv DIRECTORY KEY: links a kept environment to DIRECTORY; false when there is none. Files are shared with the cache:
# whoever changes one must replace it.
take_venv() {
  local kept=$venv_cache/$2 old script
  [ -d "$kept" ] || return 1
  rm -rf "$1"
  cp -al "$kept" "$1" 2>/dev/null || { rm -rf "$1" && cp -a "$kept" "$1"; }
  touch "$kept"
  old=$(cat "$1/place")
  grep -rlIF "$old" "$1/bin" | while read -r script; do # scripts name their interpreter
    sed "s|$old|$PWD/$1|g" "$script" >"$script.new"
    chmod --reference="$script" "$script.new"
    mv "$script.new" "$script"
  done
}

# keep_venv DIRECTORY KEY: keeps it, and forgets what was not used for 30 days.
keep_venv() {
  local part=$venv_cache/$2.$$
  mkdir -p "$venv_cache"
  rm -f "$1/place"
  echo "$PWD/$1" >"$1/place"
  # Links only: on another file system the cache would take gigabytes more. What belongs to this clone stays out.
  if cp -al "$1" "$part" 2>/dev/null; then
    rm -rf "$part"/bin/lockstep "$part"/setup-* "$part"/made-* "$part"/lib/*/site-packages/lockstep-development.pth "$venv_cache/$2"
    mv -T "$part" "$venv_cache/$2" 2>/dev/null || true
  fi
  rm -rf "$part"
  find "$venv_cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
}

# key_of TEXT...: of an environment; the interpreter is a part of it.
key_of() {
  { printf '%s\n' "$@"; "$python" -VV; command -v "$python"; uname -m; cat requirements*.txt; } | sha256sum | cut -c1-16
}

# link_tree DIRECTORY: the environment imports the package from this tree.
link_tree() {
  local file
  file=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/lockstep-development.pth
  rm -f "$file"
  echo "$PWD/python" >"$file"
}
