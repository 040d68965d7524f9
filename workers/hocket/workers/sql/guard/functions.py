"""Which functions a query may call, by dialect.

A function that sqlglot knows by name is an ordinary SQL function, and is allowed unless it is denied
here. Any other function must be listed as known, or be named by the operator (`functions` of the
database). An operator cannot override `DENIED`: these functions reach files, the network, other
sessions, settings, or text that is run as SQL.
"""

import re
from collections.abc import Mapping
from typing import Final

MODULES: Final = frozenset(
    f"sqlglot.expressions.{name}"
    for name in (
        "aggregate",
        "array",
        "datatypes",
        "functions",
        "json",
        "math",
        "string",
        "temporal",
    )
)
"""The modules in which sqlglot defines ordinary functions."""

DENIED: Final[Mapping[str, re.Pattern[str]]] = {
    "postgres": re.compile(
        r"pg_.*|dblink.*|postgres_fdw_.*|file_fdw_.*|lo_.*|loread|lowrite|be_lo.*|set_config"
        r"|current_setting|setval|nextval|currval|lastval|setseed|txid_.*|currtid2?"
        r"|(query|table|schema|database|cursor)_to_xml.*|xpath_table|ts_stat|ts_rewrite"
        r"|ts_parse|ts_debug|ts_token_type|crosstab.*|connectby|has_.*_privilege|to_reg.*"
        r"|row_security_active|inet_(client|server)_.*|binary_upgrade_.*|http.*|net_.*|plpy.*|copy_.*|system_user"
        r"|(obj|col|shobj)_description|acl.*|makeaclitem|querytree|get_raw_page|heap_page_.*"
        r"|brin_.*|gin_.*|bt_.*|amvalidate|plpgsql_.*|inline_handler|.*_validator|ri_fkey.*"
        r"|version|icu_unicode_version|unicode_version|getdatabaseencoding|getpgusername"
    ),
    "sqlite": re.compile(
        r"load_extension|readfile|writefile|edit|fts3_tokenizer|fts5.*|pragma_.*|sqlite_.*|zipfile.*"
        r"|fsdir|lsmode|sha3_query|dbstat|bytecode|tables_used|randomblob|zeroblob|geopoly_debug"
        r"|rtreecheck|eval|shell_.*|wholenumber|carray"
    ),
    "mysql": re.compile(
        r"sleep|benchmark|load_file|get_lock|release_lock|release_all_locks|is_(free|used)_lock"
        r"|(master|source)_pos_wait|wait_(for|until)_.*|sys_exec|sys_eval|lib_mysqludf.*|gtid_.*"
        r"|user|current_user|session_user|system_user|version|connection_id|database|schema"
        r"|found_rows|row_count|last_insert_id|ps_.*|statement_digest.*|name_const|extractvalue"
        r"|updatexml|random_bytes|service_.*|group_replication_.*|asynchronous_.*|mysql_.*"
    ),
    "duckdb": re.compile(
        r"read_.*|.*_scan|scan_.*|sniff_csv|parquet_.*|glob|getenv|query|query_table|sql_auto_complete"
        r"|current_setting|pragma_.*|duckdb_.*|pg_.*|(sqlite|postgres|mysql|iceberg|delta)_.*"
        r"|json_execute_serialized_sql|json_serialize_.*|from_substrait.*|get_substrait.*|st_read.*"
        r"|which_secret|load_.*|install_.*|nextval|currval|checkpoint|force_checkpoint|test_.*"
        r"|repeat_row|seq_scan|arrow_.*|python_.*|write_.*|copy_.*|http.*|version|add_parquet_key"
        r"|set_seed|setseed|enable_.*|disable_.*|sleep.*|file_.*|import_.*|export_.*|is_histogram_.*"
    ),
}
"""Always refused: a name that matches its dialect's pattern in full (lower case)."""

OUTLAST_THEIR_TIME: Final[Mapping[str, frozenset[str]]] = {
    "postgres": frozenset(
        """
        xml xpath xpath_exists xmlexists xmltable xml_is_well_formed xml_is_well_formed_content
        xml_is_well_formed_document
        """.split()
    ),
    "sqlite": frozenset("json_patch jsonb_patch unhex".split()),
}
"""Built-in functions that the database cannot stop at a query's timeout: libxml2 parses a document and
evaluates a path to the end; those of SQLite compare all parts of one value with all of another. An
operator may allow them."""

KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "postgres": frozenset(
        """
        row age acosd asind atan2d atand cosd cotd sind tand erf erfc gamma lgamma gcd lcm div scale
        min_scale trim_scale factorial random_normal random isfinite make_date make_time make_interval
        make_timestamp make_timestamptz clock_timestamp statement_timestamp transaction_timestamp
        timeofday justify_days justify_hours justify_interval date_bin date_add date_subtract
        overlaps cardinality array_ndims array_dims array_upper array_lower array_length
        array_fill array_positions array_replace array_sample array_shuffle trim_array
        array_reverse array_sort generate_series generate_subscripts string_agg string_to_table
        quote_ident quote_literal quote_nullable btrim octet_length bit_length bit_count
        casefold unistr to_ascii to_oct sha224 sha256 sha384 sha512 encode decode convert_from
        convert_to get_bit get_byte set_bit set_byte normalize is_normalized parse_ident position
        regexp_match regexp_matches regexp_split_to_array regexp_split_to_table regexp_substr
        format to_number to_char to_date to_timestamp num_nulls num_nonnulls every bool_and bool_or
        bit_and bit_or bit_xor any_value regr_avgx regr_avgy regr_count regr_intercept regr_r2
        regr_slope regr_sxx regr_sxy regr_syy
        json_agg json_agg_strict json_array_element json_array_elements json_array_elements_text
        json_array_length json_build_array json_build_object json_each json_each_text json_object
        json_object_agg json_object_agg_strict json_object_agg_unique json_object_keys
        json_to_record json_to_recordset json_typeof
        json_strip_nulls json_extract_path json_extract_path_text
        jsonb_agg jsonb_agg_strict jsonb_array_elements jsonb_array_elements_text
        jsonb_array_length jsonb_build_array jsonb_build_object jsonb_concat jsonb_each
        jsonb_each_text jsonb_exists_all jsonb_exists_any jsonb_extract_path
        jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_agg_strict
        jsonb_object_agg_unique jsonb_object_keys jsonb_path_exists jsonb_path_exists_tz
        jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
        jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz
        jsonb_path_query_tz jsonb_pretty
        jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof
        row_to_json to_json to_jsonb array_to_json
        to_tsquery to_tsvector plainto_tsquery phraseto_tsquery websearch_to_tsquery numnode
        setweight strip ts_headline ts_rank ts_rank_cd ts_delete ts_filter tsvector_to_array
        array_to_tsvector ts_lexize
        similarity word_similarity strict_word_similarity show_trgm unaccent levenshtein
        levenshtein_less_equal soundex difference metaphone dmetaphone
        cosine_distance l2_distance inner_product l1_distance vector_dims vector_norm
        isempty lower_inc lower_inf upper_inc upper_inf range_merge multirange range_agg
        range_intersect_agg int4range int8range numrange daterange tsrange tstzrange
        abbrev broadcast family host hostmask masklen netmask network text set_masklen
        inet_same_family inet_merge
        area center diameter height width radius npoints isclosed isopen slope point box circle
        line lseg path polygon diagonal bound_box
        uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 gen_random_uuid crc32 crc32c
        percentile_cont percentile_disc mode cume_dist percent_rank dense_rank rank
        grouping nullif width_bucket ltrim rtrim lpad rpad strpos textlen mod pow power log10 to_hex
        to_bin date_part timezone now json_query json_exists json_value json_arrayagg json_objectagg
        json_scalar json_serialize xmlconcat xmlcomment xmlagg xmltext enum_first enum_last enum_range
        datemultirange int4multirange int8multirange nummultirange tsmultirange tstzmultirange
        multirange jsonb_to_tsvector json_to_tsvector tsquery_phrase regexp_like
        array_remove unicode_assigned all some json_array json variance
        char_length character_length btrim make_interval array_prepend array_cat
        """.split()
    ),
    "sqlite": frozenset(
        """
        total printf format unixepoch julianday timediff likely unlikely likelihood iif quote
        soundex typeof unicode char instr ltrim rtrim trim substr group_concat string_agg
        json json_array json_array_length json_error_position json_extract json_insert json_object
        json_pretty json_quote json_remove json_replace json_set json_type json_valid
        json_each json_tree json_group_array json_group_object jsonb jsonb_array jsonb_extract
        jsonb_insert jsonb_object jsonb_remove jsonb_replace jsonb_set jsonb_each
        jsonb_tree jsonb_group_array jsonb_group_object strftime date time datetime random
        glob like hex sign ceil ceiling floor trunc exp ln log log2 log10 pow power mod pi
        radians degrees acos asin atan atan2 acosh asinh atanh cos cosh sin sinh sqrt tan tanh
        bm25 snippet highlight matchinfo offsets concat concat_ws octet_length median percentile
        percentile_cont percentile_disc row
        """.split()
    ),
    "mysql": frozenset(
        """
        row sysdate curtime utc_date utc_time utc_timestamp period_add period_diff sec_to_time
        time_to_sec maketime makedate timediff addtime subtime microsecond elt field find_in_set
        export_set make_set insert mid locate substring_index quote oct bin ord char_length
        bit_count bit_length octet_length crc32 conv truncate pi std stddev_pop variance
        json_array json_object json_arrayagg json_objectagg json_contains json_contains_path
        json_length json_keys json_depth json_search json_type json_valid json_unquote json_quote
        json_pretty json_overlaps json_value member format inet_aton inet_ntoa inet6_aton inet6_ntoa
        is_ipv4 is_ipv6 soundex strcmp weight_string uncompress compress regexp_instr
        regexp_substr regexp_replace regexp_like any_value grouping bin_to_uuid uuid_to_bin is_uuid
        get_format to_days from_days to_seconds timestampadd timestampdiff yearweek interval
        """.split()
    ),
    "duckdb": frozenset(
        """
        row struct_pack list_value list_aggregate list_apply list_filter list_reduce list_sort
        list_reverse_sort list_distinct list_unique list_zip list_contains list_has_any list_has_all
        list_position list_slice list_sum list_avg list_min list_max list_count list_transform
        array_agg array_length len flatten unnest generate_series range map map_keys map_values
        map_entries map_from_entries element_at cardinality struct_extract struct_insert row_to_json
        string_split string_split_regex str_split regexp_matches regexp_full_match regexp_extract_all
        format printf strip_accents nfc_normalize damerau_levenshtein editdist3 hamming jaccard
        jaro_similarity jaro_winkler_similarity levenshtein mismatches contains prefix suffix
        starts_with ends_with date_part datepart datesub date_sub datediff date_diff dayname monthname
        strptime try_strptime epoch_ms epoch_us epoch_ns make_date make_time make_timestamp age
        time_bucket century decade millennium isodow isoyear julian last_day favg fsum product mad
        mode entropy kurtosis skewness histogram quantile_cont quantile_disc reservoir_quantile
        approx_quantile arg_min arg_max max_by min_by any_value first last bitstring_agg
        json_extract_string json_array_length json_keys json_type json_valid json_structure
        json_contains json_group_array json_group_object json_each json_tree to_json hash
        gcd lcm factorial even nextafter isfinite isinf isnan bit_count setbit getbit
        list_cosine_similarity list_distance list_inner_product array_cosine_similarity
        array_distance array_inner_product bar alias typeof
        """.split()
    ),
}
"""Functions allowed in addition to those that sqlglot knows: built-in ones that only compute from their
arguments."""


_OF_EXTENSIONS: Final = frozenset(
    """
    similarity word_similarity strict_word_similarity show_trgm unaccent levenshtein
    levenshtein_less_equal soundex difference metaphone dmetaphone daitch_mokotoff
    cosine_distance l2_distance inner_product l1_distance vector_dims vector_norm
    """.split()
)
"""Postgres: known functions that belong to the schema in which their extension was installed."""


def is_denied(dialect: str, name: str) -> bool:
    """Tell whether a function is refused whatever the operator allows."""
    return DENIED[dialect].fullmatch(name.lower()) is not None


def outlasts_its_time(dialect: str, name: str) -> bool:
    """Tell whether a built-in function continues after a query's timeout."""
    return name.lower() in OUTLAST_THEIR_TIME.get(dialect, ())


def is_known(dialect: str, name: str) -> bool:
    """Tell whether a function that sqlglot does not know is a harmless built-in one."""
    return name.lower() in KNOWN[dialect]


def is_of_extension(name: str) -> bool:
    """Tell whether a known function of Postgres belongs to an extension."""
    return name.lower() in _OF_EXTENSIONS
