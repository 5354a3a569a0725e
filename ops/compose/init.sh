# What the service `init` does before the others start: it stores the secrets in volumes, copies the files of the profile
# monitoring, and makes ./data writable.
#
# A value from the shell replaces the stored one. Without one, the stored one stays, so that a later `docker compose up`
# from another shell needs no variable. It may run any number of times, also beside running containers.
set -eu
umask 077

# The value of a secret, or nothing. For a variable that is not set, ops/compose/secrets.env says `unset`.
given() {
  value=$(cat "/run/secrets/$1" 2>/dev/null || true)
  [ "$value" = unset ] || printf %s "$value"
}

# Store a file that user and group 1000 may read: our containers have both, Redis has the group.
store() {
  printf '%s\n' "$2" > "$1.new"
  chown 1000:1000 "$1.new"
  chmod 440 "$1.new"
  mv "$1.new" "$1"
}

random() { head -c 32 /dev/urandom | sha256sum | cut -c 1-48; }

password=$(given redis_password)
if [ -n "$password" ]; then
  store /volumes/redis/password "$password"
elif [ ! -e /volumes/redis/password ]; then
  case $REDIS_URL in
    "") store /volumes/redis/password "$(random)" ;;
    *@*) store /volumes/redis/password "" ;;  # the password is in REDIS_URL
    *)
      echo "REDIS_URL names the Redis of another machine. Set REDIS_PASSWORD too. On that machine," >&2
      echo "\`docker compose exec redis cat /run/secrets/redis/password\` shows it." >&2
      exit 1
      ;;
  esac
fi

login=$(given flower_login)
if [ -n "$login" ]; then
  store /volumes/flower/login "$login"
elif [ ! -e /volumes/flower/login ]; then
  store /volumes/flower/login "shardsift:$(random)"
fi

password=$(given grafana_password)
if [ -n "$password" ]; then
  store /volumes/grafana/password "$password"
elif [ ! -e /volumes/grafana/password ]; then
  store /volumes/grafana/password "$(random)"
fi

token=$(given hf_token)
if [ -n "$token" ]; then
  store /volumes/tokens/hf_token "$token"
fi

key=$(given aws_access_key_id)
if [ -n "$key" ]; then
  session=$(given aws_session_token)
  store /volumes/tokens/aws_credentials "[default]
aws_access_key_id = $key
aws_secret_access_key = $(given aws_secret_access_key)${session:+
aws_session_token = $session}"
fi

# Prometheus and Grafana run as users of their own, who may not read the files of a clone that is its owner's alone.
copy() {
  mkdir -p "$(dirname "$2")"
  cp "$1" "$2.new"
  chmod 444 "$2.new"
  mv "$2.new" "$2"
}

copy /settings/compose/prometheus.yml /volumes/monitoring/prometheus.yml
copy /settings/monitoring/alerts.yml /volumes/monitoring/alerts.yml
copy /settings/compose/grafana/datasource.yml /volumes/monitoring/datasources/shardsift.yml
copy /settings/compose/grafana/dashboards.yml /volumes/monitoring/dashboards/shardsift.yml
copy /settings/monitoring/dashboard.json /volumes/monitoring/shown/shardsift.json
chmod 755 /volumes/monitoring /volumes/monitoring/datasources /volumes/monitoring/dashboards /volumes/monitoring/shown

# Compose has made ./data if it was missing, as root's. A folder that belongs to another user stays theirs.
case $(stat -c %u /data) in
  1000) ;;
  0) chown 1000:1000 /data ;;
  *) chgrp 1000 /data && chmod g+rwx /data ;;
esac || echo "Cannot change who may write to ./data. Outputs there need a folder that uid 1000 can write to." >&2

[ -n "$REDIS_URL" ] || echo "Flower's user and password: docker compose exec flower cat /run/secrets/flower/login"
