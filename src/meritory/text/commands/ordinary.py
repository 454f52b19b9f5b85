"""Ordinary commands that every rule is tried on, also where nothing was recorded yet.

They stand for what agents do all day. A trigger that fits one of them would be in the way of
everybody, so its rule stays a proposal.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from meritory.text.commands.actions import ToolAction

_LINES: Final = """\
git status
git status --short
git diff
git diff --stat HEAD~1
git diff --cached
git log --oneline -20
git log -p -- src
git show HEAD
git branch
git branch -a
git checkout -b feature
git checkout main
git switch main
git add .
git add -A
git add -p
git commit -m "change"
git commit -am "change"
git commit --amend --no-edit
git push
git push origin HEAD
git push -u origin feature
git pull
git pull --rebase
git fetch --all
git merge main
git rebase main
git stash
git stash pop
git tag
git remote -v
git rev-parse HEAD
git blame README.md
git clone https://example.org/a.git
git worktree list
git ls-files
git grep word
git restore --staged .
git reset HEAD
git cherry-pick HEAD
ls
ls -la
ls -R src
cd src
pwd
cat README.md
head -50 main.py
tail -f log.txt
tail -n 100 server.log
less notes.txt
wc -l src/main.py
find . -name "*.py"
find . -type f
grep -rn word src
grep -i word file.txt
rg word
rg -n word src
sed -n 1,80p main.py
sed -i s/a/b/ file.txt
awk {print} file.txt
sort names.txt
uniq -c names.txt
diff a.txt b.txt
echo hello
printf hello
mkdir -p build
mkdir src
touch file.txt
cp a.txt b.txt
cp -r src copy
mv a.txt b.txt
rm a.txt
rm -f a.txt
rm -rf node_modules
rm -rf __pycache__
rm -rf .pytest_cache
rm -rf /tmp/scratch
chmod +x run.sh
chmod 644 file.txt
ln -s a b
tar -xzf a.tar.gz
unzip a.zip
du -sh .
df -h
ps aux
kill 1234
which python
env
date
curl http://localhost:8000/health
curl -s https://example.org/api
wget https://example.org/file
python main.py
python -m pytest
python -m venv .venv
python -c "print(1)"
python manage.py migrate
python manage.py test
pytest
pytest -q
pytest -x tests
pytest -k name tests/test_main.py
ruff check .
ruff format .
mypy src
black .
pip install -r requirements.txt
pip install requests
pip list
uv sync
uv add requests
uv run pytest
poetry install
npm install
npm install react
npm ci
npm test
npm run build
npm run dev
npm run lint
npx tsc --noEmit
pnpm install
yarn install
yarn build
node index.js
tsc
eslint src
cargo build
cargo test
cargo clippy
go build ./...
go test ./...
go mod tidy
make
make test
make build
docker ps
docker build -t app .
docker run --rm app
docker logs app
docker compose up -d
docker compose down
docker compose logs
kubectl get pods
kubectl logs pod
kubectl describe pod app
terraform plan
terraform init
gh pr view
gh pr list
gh pr create
gh issue list
psql -c "select 1"
sqlite3 app.db .tables
ssh host uptime
jq . data.json
tree -L 2
"""
_PATHS: Final = """\
README.md
src/main.py
src/app.ts
src/index.js
src/utils/helpers.py
tests/test_main.py
package.json
pyproject.toml
docs/index.md
src/components/Button.tsx
Makefile
"""


@cache
def ordinary_actions() -> tuple[ToolAction, ...]:
    """What every agent does, whoever it works for."""
    lines = [ToolAction("shell", "shell", line) for line in _LINES.splitlines()]
    paths = _PATHS.splitlines()
    return (*lines, *(ToolAction(tool, tool, path) for tool in ("edit", "read") for path in paths))
