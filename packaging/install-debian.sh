#!/usr/bin/env bash
# install-debian.sh [LIST]: installs the packages of LIST (default: packaging/debian-packages.txt) that this machine lacks. Without
# root rights it prints the command to type and fails. Does nothing when all packages are installed.
set -euo pipefail
list="${1:-$(dirname "$0")/debian-packages.txt}"

if ! command -v dpkg-query > /dev/null; then
  echo "note: not a Debian system; the libraries of $list must be installed by other means" >&2
  exit 0
fi
missing=()
while read -r package _; do
  case "$package" in '' | '#'*) continue ;; esac
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done < "$list"
[ ${#missing[@]} -eq 0 ] && exit 0

line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
  echo "error: ${#missing[@]} Debian packages are missing. Type this, then run make again:" >&2
  echo "  sudo sh -c '$line'" >&2
  exit 1
fi
echo "== Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
