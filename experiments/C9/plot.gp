# Draws the figures of C9 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.21.svg'
set title 'goals met' noenhanced
set xlabel 'mean gap, s' noenhanced
set ylabel '%' noenhanced
plot for [column=2:4] 'figure-5.21.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.22.svg'
set title 'jobs migrated, suspended, and moved and resumed' noenhanced
set xlabel 'mean gap, s' noenhanced
set ylabel 'changes' noenhanced
plot for [column=2:4] 'figure-5.22.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.23.svg'
set title 'distance to the goal at completion, by policy and goal factor' noenhanced
set xlabel 'mean gap, s' noenhanced
set ylabel 'distance, s' noenhanced
plot for [column=2:19] 'figure-5.23.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
