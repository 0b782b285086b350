#!/usr/bin/env bash
# Watch a service and adapt its model to each drift: the new model replaces the old one without a pause.
#
#     ln -s vending bundles/served
#     equipoise serve bundle=bundles/served reload_seconds=5 state_dir=state capture_dir=kept
#     examples/adapt_loop.sh http://127.0.0.1:8000 bundles/served kept --epochs 12
#
# The service watches the link; `equipoise adapt` points it to a new bundle beside the old one if that passes the gate,
# and the service swaps it in. Options behind the three arguments go to `equipoise adapt`. CHECK_SECONDS, 60 by default,
# must be longer than reload_seconds. Ctrl-C ends the loop; `equipoise adapt --link LINK --roll-back` takes back the
# last swap.
set -euo pipefail

service=$1 link=$2 captures=$3
shift 3

while sleep "${CHECK_SECONDS:-60}"; do
    verdict=$(curl --silent --show-error --fail --max-time 10 "$service/drift") || continue # try again later
    [[ $verdict == *'"state":"drift"'* ]] || continue
    # a status other than 0 ends the loop: 3 the gate refused the model, 4 a person must act first; the command says why
    equipoise adapt --service "$service" --capture-dir "$captures" --link "$link" \
        --out "$(dirname "$link")/adapted-$(date +%Y%m%d-%H%M%S)" "$@"
done
