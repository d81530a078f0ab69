# Reads the rows of the table of results, and writes one row for each database and workload: the CPU cost of a
# container as it comes, and as one layer after the other is taken away. Of the studies with
# such an environment, one that ran whole goes before a quick part. scripts/results runs it.
BEGIN {
    FS = " *[|] *"
    n = split("container default,+ cpuset,+ host network,+ no seccomp,+ no cgroup,docker default,native again (A/A)", column, ",")
}
/^[|] \[/ && NF > 8 {
    key = $3 " | " $4
    whole = $2 !~ /-quick\.md/
    if ($5 == column[1] && (!(key in link) || whole > is_whole[key])) {
        if (!(key in link)) {
            for (k = ++keys; k > 1 && order[k - 1] > key; k--) order[k] = order[k - 1]
            order[k] = key
        }
        link[key] = $2; is_whole[key] = whole
    }
    cost[$2, key, $5] = $6
}
END {
    printf "| system | workload | study"
    for (i = 1; i <= n; i++) printf " | %s", column[i]
    printf " |\n| :-- | :-- | :--"
    for (i = 1; i <= n; i++) printf " | :--"
    print " |"
    for (k = 1; k <= keys; k++) {
        key = order[k]
        printf "| %s | %s", key, link[key]
        for (i = 1; i <= n; i++) {
            id = link[key] SUBSEP key SUBSEP column[i]
            printf " | %s", (id in cost ? cost[id] : "-")
        }
        print " |"
    }
}
