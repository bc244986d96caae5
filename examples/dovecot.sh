#!/bin/sh
# Starts a private Dovecot that accepts mail by LMTP, for the workload `mail` (mail-ext4, mail-drbd)
#
#     sh dovecot.sh start DIRECTORY PORT [CONNINFO]
#     sh dovecot.sh stop DIRECTORY
#
# Needs Dovecot 2.3 (Debian: dovecot-core, dovecot-lmtpd; with CONNINFO also dovecot-pgsql). The system's
# Dovecot is not touched: configuration, sockets and log are in DIRECTORY/dovecot, and mail goes to
# DIRECTORY/mail/USER as Maildir, each delivery flushed. It listens on 127.0.0.1.
#
# The users are user1 to user100, in any domain: in a passwd-file, or with CONNINFO in the table mail_users
# of a PostgreSQL database, which is created if missing and queried for every recipient.
#
# Variables: MAIL_USERS, the number of users; MAIL_PLACE, where mail goes, with Dovecot's %n for the user and %d for
# the domain; MAIL_LISTEN, the address; MAIL_RUN_AS, the user that runs it if root starts it (nobody).
set -eu

usage() { echo "usage: $0 start DIRECTORY PORT [CONNINFO] | $0 stop DIRECTORY" >&2; exit 2; }
[ $# -ge 2 ] || usage
PATH=$PATH:/usr/sbin:/sbin
home=$2/dovecot

if [ "$1" = stop ]; then
    [ -s "$home/run/master.pid" ] || exit 0
    pid=$(cat "$home/run/master.pid")
    # After a crash of the machine the number may be that of another process.
    cat "/proc/$pid/cmdline" 2>/dev/null | grep -qF dovecot.conf || exit 0
    kill "$pid" 2>/dev/null || exit 0
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$pid" 2>/dev/null || exit 0
        sleep 0.2
    done
    echo "dovecot (process $pid) does not end" >&2
    exit 1
fi

[ "$1" = start ] && [ $# -ge 3 ] && [ $# -le 4 ] || usage
port=$3 conninfo=${4:-}
case $(dovecot --version) in
    2.3.*) ;;
    *) echo "this is written for Dovecot 2.3, not $(dovecot --version)" >&2; exit 1 ;;
esac

as=
who=$(id -un)
if [ "$(id -u)" = 0 ]; then
    who=${MAIL_RUN_AS:-nobody}
    as="setpriv --reuid $who --regid $(id -gn "$who") --clear-groups"
fi
group=$(id -gn "$who")
mkdir -p "$home/run" "$2/mail"
[ -z "$as" ] || chown "$who:$group" "$home" "$home/run" "$2/mail"

if [ -z "$conninfo" ]; then
    seq -f 'user%.0f::::::' 1 "${MAIL_USERS:-100}" >"$home/users"
    users="driver = passwd-file
  args = username_format=%n $home/users
  default_fields = uid=$who gid=$group home=$home/home/%n"
else
    psql -X -q -v ON_ERROR_STOP=1 "$conninfo" <<SQL
SET client_min_messages = warning;
CREATE TABLE IF NOT EXISTS mail_users (name text PRIMARY KEY);
INSERT INTO mail_users SELECT 'user' || n FROM generate_series(1, ${MAIL_USERS:-100}) n
  ON CONFLICT DO NOTHING;
SQL
    # The connection may contain a password.
    (umask 077 && cat >"$home/sql.conf" <<SQL
driver = pgsql
connect = $conninfo
user_query = SELECT '$who' AS uid, '$group' AS gid, '$home/home/%n' AS home FROM mail_users WHERE name = '%n'
SQL
    )
    [ -z "$as" ] || chown "$who:$group" "$home/sql.conf"
    users="driver = sql
  args = $home/sql.conf"
fi

cat >"$home/dovecot.conf" <<CONF
base_dir = $home/run
state_dir = $home/run
log_path = $home/log
protocols = lmtp
listen = ${MAIL_LISTEN:-127.0.0.1}
ssl = no
default_internal_user = $who
default_internal_group = $group
default_login_user = $who
first_valid_uid = 1
first_valid_gid = 1
postmaster_address = postmaster@localhost
mail_location = maildir:${MAIL_PLACE:-$2/mail/%n}
service anvil {
  chroot =
}
service auth {
  user = $who
}
service auth-worker {
  user = $who
}
service lmtp {
  user = $who
  inet_listener lmtp {
    address = ${MAIL_LISTEN:-127.0.0.1}
    port = $port
  }
  unix_listener lmtp {
    mode = 0666
  }
}
# Nobody logs in by LMTP, but Dovecot requires a passdb.
passdb {
  driver = static
  args = nopassword=yes
}
userdb {
  $users
}
CONF
# The daemon must not keep our streams open.
if ! $as dovecot -c "$home/dovecot.conf" </dev/null >"$home/start" 2>&1; then
    cat "$home/start" >&2
    exit 1
fi
