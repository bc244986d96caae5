_pgio() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="pgio"
                ;;
            pgio,ballast)
                cmd="pgio__subcmd__ballast"
                ;;
            pgio,compare)
                cmd="pgio__subcmd__compare"
                ;;
            pgio,demo)
                cmd="pgio__subcmd__demo"
                ;;
            pgio,destroy)
                cmd="pgio__subcmd__destroy"
                ;;
            pgio,device)
                cmd="pgio__subcmd__device"
                ;;
            pgio,doctor)
                cmd="pgio__subcmd__doctor"
                ;;
            pgio,drive)
                cmd="pgio__subcmd__drive"
                ;;
            pgio,example)
                cmd="pgio__subcmd__example"
                ;;
            pgio,history)
                cmd="pgio__subcmd__history"
                ;;
            pgio,plan)
                cmd="pgio__subcmd__plan"
                ;;
            pgio,report)
                cmd="pgio__subcmd__report"
                ;;
            pgio,run)
                cmd="pgio__subcmd__run"
                ;;
            pgio,setup)
                cmd="pgio__subcmd__setup"
                ;;
            pgio,store)
                cmd="pgio__subcmd__store"
                ;;
            pgio,undo)
                cmd="pgio__subcmd__undo"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        pgio)
            opts="-h -V --help --version demo setup run compare plan report doctor undo destroy example device drive ballast history store"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__ballast)
            opts="-y -h --release --yes --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__compare)
            opts="-h --out --resume --blocks --max-blocks --matters --weave --gate --plan --offline --order --drivers --image --dry-run --live --live-token-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --out)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --resume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --blocks)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-blocks)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --matters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --weave)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drivers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --image)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --live)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --live-token-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__demo)
            opts="-h --out --pg --blocks --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --out)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pg)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --blocks)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__destroy)
            opts="-y -h --yes --config --dbname --connect-string --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dbname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connect-string)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__device)
            opts="-h --against --destroy --uuid --rounds --size --duration --seed --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --against)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duration)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__doctor)
            opts="-h --format --config --dbname --connect-string --num-schemas --num-threads --scale --filler --filler-width --fillfactor --unlogged --scan-scale --update-pct --run-time --work-unit --update-work-unit --access --commit-every --batch --skew --zipf-exponent --gaussian-mean --gaussian-sd --hot-spot --hot-offset --hot-pct --hot-table --hot-table-pct --scan-pct --insert-pct --delete-pct --update-width --think-pct --think-min --think-max --work-loop --ramp --table-model --seed --warmup --sessions --engine --pipeline --rate --arrivals --client-threads --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dbname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connect-string)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-schemas)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler-width)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fillfactor)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --unlogged)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan-scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --run-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --work-unit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-work-unit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --access)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --commit-every)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --zipf-exponent)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gaussian-mean)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gaussian-sd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-spot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-table-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --insert-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delete-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-width)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-min)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --work-loop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ramp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table-model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warmup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sessions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --engine)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pipeline)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --client-threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__drive)
            opts="-h --coordinator --within --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --coordinator)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --within)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__example)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__history)
            opts="-h --store --experiment --metric --format --output --out --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --store)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --experiment)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metric)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "text html markdown csv json" -- "${cur}"))
                    return 0
                    ;;
                --out)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__plan)
            opts="-h --pilot --matters --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --pilot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --matters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__report)
            opts="-h --format --all --baseline --matters --gate --wide --output --out --against --fail-if --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "text html markdown csv json openmetrics junit" -- "${cur}"))
                    return 0
                    ;;
                --baseline)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --matters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --out)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --against)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-if)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__run)
            opts="-h --json --classic-files --telemetry --tolerate --strict --config --dbname --connect-string --num-schemas --num-threads --scale --filler --filler-width --fillfactor --unlogged --scan-scale --update-pct --run-time --work-unit --update-work-unit --access --commit-every --batch --skew --zipf-exponent --gaussian-mean --gaussian-sd --hot-spot --hot-offset --hot-pct --hot-table --hot-table-pct --scan-pct --insert-pct --delete-pct --update-width --think-pct --think-min --think-max --work-loop --ramp --table-model --seed --warmup --sessions --engine --pipeline --rate --arrivals --client-threads --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --classic-files)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --telemetry)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tolerate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dbname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connect-string)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-schemas)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler-width)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fillfactor)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --unlogged)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan-scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --run-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --work-unit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-work-unit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --access)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --commit-every)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --zipf-exponent)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gaussian-mean)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gaussian-sd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-spot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hot-table-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --insert-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delete-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --update-width)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-pct)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-min)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --think-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --work-loop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ramp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table-model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warmup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sessions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --engine)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pipeline)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --client-threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__setup)
            opts="-h --classic-files --no-space-check --config --dbname --connect-string --num-schemas --num-threads --scale --create-base-table --tablespace --filler --filler-width --fillfactor --unlogged --scan-scale --seed --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --classic-files)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dbname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connect-string)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-schemas)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --create-base-table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tablespace)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --filler-width)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fillfactor)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --unlogged)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scan-scale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__store)
            opts="-h --to --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --to)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        pgio__subcmd__undo)
            opts="-h --keep --restore --connect --forget --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --forget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _pgio -o nosort -o bashdefault -o default pgio
else
    complete -F _pgio -o bashdefault -o default pgio
fi
